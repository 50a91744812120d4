package keystore

import (
	"time"

	"github.com/keypost/keypost/keystore/policy"
)

type (
	// Policy is what a key set declares; see package policy.
	Policy = policy.Policy
	// Cache is how long copies of the documents are kept.
	Cache = policy.Cache
	// Duration is a time.Duration as documents have it.
	Duration = policy.Duration
)

// ReachCopies is a Reach; see package policy.
const ReachCopies = policy.ReachCopies

// DurationPtr returns a pointer to d as a Duration. A policy has pointers since zero is not the same as undeclared.
func DurationPtr(d time.Duration) *Duration { return policy.DurationPtr(d) }

// DefaultCache returns the lifetimes for a key set whose policy declares none, if the server's configuration has none either.
func DefaultCache() Cache { return policy.DefaultCache() }
