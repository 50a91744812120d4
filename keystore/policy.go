package keystore

import (
	"errors"
	"time"

	"github.com/keypost/keypost/keystore/policy"
)

type (
	// Policy is what a key set declares; see package policy.
	Policy = policy.Policy
	// Held is a value that counts until what was published under it has run out.
	Held = policy.Held
	// Cache is how long copies of the documents are kept.
	Cache = policy.Cache
	// Duration is a time.Duration as documents have it.
	Duration = policy.Duration
	// Reach says who can read the documents.
	Reach = policy.Reach
	// Term is a part of the time that a gate waits.
	Term = policy.Term
)

// Constants of package policy.
const (
	ReachCopies = policy.ReachCopies
	MaxPoll     = policy.MaxPoll
	Convergence = policy.Convergence
	ClockSkew   = policy.ClockSkew
)

// DurationPtr returns a pointer to d as a Duration. A policy has pointers since zero is not the same as undeclared.
func DurationPtr(d time.Duration) *Duration { return policy.DurationPtr(d) }

// DefaultCache returns the lifetimes for a key set whose policy declares none, if the server's configuration has none either.
func DefaultCache() Cache { return policy.DefaultCache() }

var errLoweredUndeclared = errors.New("a declared token lifetime cannot become undeclared; set it to the longest one in use")
