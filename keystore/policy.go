package keystore

import (
	"errors"
	"time"

	"github.com/keypost/keypost/keystore/policy"
)

// What a key set declares, and the arithmetic of its caches: see package policy.
type (
	Policy   = policy.Policy
	Held     = policy.Held
	Cache    = policy.Cache
	Duration = policy.Duration
	Reach    = policy.Reach
	Term     = policy.Term
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
