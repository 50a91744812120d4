// Package gate decides when a step with a key is safe: what has to be seen of it, for how long caches and relying parties may go by what
// they had before, and until when tokens are valid. It knows what a key set declares and what was seen, and changes nothing.
package gate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/policy"
)

// Gate names a condition that a transition waits for.
type Gate string

// The gates, by what is still missing.
const (
	GateObserved   Gate = "observed"    // the key has not been seen at every public address
	GateFresh      Gate = "fresh"       // the last complete observation is too old
	GateEdge       Gate = "edge"        // a shared cache was seen but how long it holds is undeclared
	GateCaches     Gate = "caches"      // a cache may still hold a JWKS without the key
	GateSigning    Gate = "signing"     // something may still sign with the key
	GateTokens     Gate = "tokens"      // tokens that the key signed may still be valid
	GateUndeclared Gate = "undeclared"  // the policy does not have the number that the gate needs
	GateClock      Gate = "clock"       // a recorded time lies in the future, or a clock is wrong
	GateCopies     Gate = "copies"      // a relying party may hold an uploaded JWKS without the key
	GateFetched    Gate = "fetched"     // a relying party showed that its last fetch may have been answered without the key
	GateActiveKeys Gate = "active-keys" // a key may still sign
)

// NotYetError reports that the gate of a transition is closed.
type NotYetError struct {
	Step     string        // the transition: promote, remove …
	Key      key.ID        // empty if it is about the whole key set
	Gate     Gate          // the closed gate
	Opens    time.Time     // when the gate opens by itself; zero if somebody must act first
	Earliest time.Time     // before which it stays closed even if somebody acts at once; zero if not known
	Need     string        // why it is closed, and the act that is needed
	Terms    []policy.Term // how Opens or Earliest was computed
}

// Error returns one sentence: the transition, why the gate is closed, and when it opens or what to do.
func (e *NotYetError) Error() string {
	var b strings.Builder
	b.WriteString(e.Step)
	if e.Key != "" {
		fmt.Fprintf(&b, " key %s", e.Key)
	}
	b.WriteString(": not yet: " + e.Need)
	switch {
	case !e.Opens.IsZero():
		fmt.Fprintf(&b, "; possible from %s", stamp(e.Opens))
	case !e.Earliest.IsZero():
		fmt.Fprintf(&b, "; not before %s, and only after it was observed", stamp(e.Earliest))
	}
	sep := " ("
	for _, t := range e.Terms {
		fmt.Fprintf(&b, "%s%s %v", sep, t.What, policy.Duration(t.Duration))
		sep = " + "
	}
	if len(e.Terms) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// closed is why a gate is closed: by an act that is missing, until a time, or since what was seen is to be looked at again. They
// count in this order: nobody is to wait for a gate that would not open, and a look before the wait would be old after it.
type closed struct{ act, wait, look *NotYetError }

// needs adds that an act is missing. Of several the first counts.
func (c *closed) needs(g Gate, need string) {
	if c.act == nil {
		c.act = &NotYetError{Gate: g, Need: need}
	}
}

// until adds that the gate opens by itself. Of several times the latest counts.
func (c *closed) until(now time.Time, e NotYetError) {
	if now.Before(e.Opens) && (c.wait == nil || e.Opens.After(c.wait.Opens)) {
		c.wait = &e
	}
}

// again adds that what was seen is too old.
func (c *closed) again(g Gate, need string) {
	if c.look == nil {
		c.look = &NotYetError{Gate: g, Need: need}
	}
}

// clock adds that a clock is wrong, if one is: what was seen last at a time, by a clock that is ahead of the server's.
func (c *closed) clock(what string, last time.Time, ahead policy.Duration, now time.Time) {
	if last.After(now.Add(ClockTolerance)) {
		c.needs(GateClock, fmt.Sprintf("%s at %s, which lies in the future by this machine's clock; check the clocks of this machine and of who looked", what, stamp(last)))
	}
	by, direction := time.Duration(ahead).Abs(), "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	if by > ClockTolerance {
		c.needs(GateClock, fmt.Sprintf("%s by a machine whose clock is %v %s the server's; set the one that is wrong, and look again", what, policy.Duration(by), direction))
	}
}

// error returns the reason that counts, nil if the gate is open.
func (c closed) error(step string, id key.ID) *NotYetError {
	e := cmp.Or(c.act, c.wait, c.look)
	if e != nil {
		e.Step, e.Key = step, id
	}
	return e
}
