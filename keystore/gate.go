package keystore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
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
	GateUndeclared Gate = "undeclared"  // the policy lacks the number that the gate needs
	GateClock      Gate = "clock"       // a recorded time lies in the future, or a clock is wrong
	GateCopies     Gate = "copies"      // a relying party may hold an uploaded JWKS without the key
	GateActiveKeys Gate = "active-keys" // a key may still sign
)

// NotYetError reports that the gate of a transition is closed.
type NotYetError struct {
	Step     string    // the transition: promote, remove …
	Key      KeyID     // empty if it is about the whole key set
	Gate     Gate      // the closed gate
	Opens    time.Time // when the gate opens by itself; zero if somebody must act first
	Earliest time.Time // before which it stays closed even if somebody acts at once; zero if not known
	Need     string    // why it is closed, and the act that is needed
	Terms    []Term    // how Opens or Earliest was computed
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
		fmt.Fprintf(&b, "%s%s %v", sep, t.What, Duration(t.Duration))
		sep = " + "
	}
	if len(e.Terms) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// devSlack takes the place of [Convergence] and [ClockSkew] in development: one server watches its directory, and its clock is
// everybody's. A rotation can be tried in a minute.
const devSlack = 5 * time.Second

// convergence is how long a change of s may take to be served everywhere.
func (s KeySet) convergence() time.Duration { return s.unlessDev(Convergence) }

func (s KeySet) unlessDev(d time.Duration) time.Duration {
	if s.dev {
		return devSlack
	}
	return d
}

// cachePolicy returns what is known of caches and relying parties. No cloud reads a development issuer, whatever the policy
// declares: it has a port, or a certificate that nobody trusts.
func (s KeySet) cachePolicy() Policy {
	if !s.dev {
		return s.policy
	}
	p := s.policy.Clone()
	p.RelyingParties = []string{"vault"}
	return p
}

// skew is how long after its exp a token may still be accepted.
func (s KeySet) skew() time.Duration { return s.unlessDev(ClockSkew) }

// Constants of the gates.
const (
	promoteFloor     = time.Hour          // never sooner, outside development
	ObservationFresh = 15 * time.Minute   // how old a complete observation may be
	ClockTolerance   = time.Minute        // how far apart two clocks may be before one of them counts as wrong
	clocks           = 2 * ClockTolerance // by how much the clocks of who observed and who promotes may differ
)

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
func (c *closed) until(now time.Time, g Gate, need string, opens time.Time, terms []Term) {
	if now.Before(opens) && (c.wait == nil || opens.After(c.wait.Opens)) {
		c.wait = &NotYetError{Gate: g, Need: need, Opens: opens, Terms: terms}
	}
}

// again adds that what was seen is too old.
func (c *closed) again(g Gate, need string) {
	if c.look == nil {
		c.look = &NotYetError{Gate: g, Need: need}
	}
}

// clock adds that a clock is wrong, if one is: what was seen last at a time, by a clock that is ahead of the server's.
func (c *closed) clock(what string, last time.Time, ahead Duration, now time.Time) {
	if last.After(now.Add(ClockTolerance)) {
		c.needs(GateClock, fmt.Sprintf("%s at %s, which lies in the future by this machine's clock; check the clocks of this machine and of who looked", what, stamp(last)))
	}
	by, direction := time.Duration(ahead).Abs(), "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	if by > ClockTolerance {
		c.needs(GateClock, fmt.Sprintf("%s by a machine whose clock is %v %s the server's; set the one that is wrong, and look again", what, Duration(by), direction))
	}
}

// error returns the reason that counts, nil if the gate is open.
func (c closed) error(step string, id KeyID) *NotYetError {
	e := cmp.Or(c.act, c.wait, c.look)
	if e != nil {
		e.Step, e.Key = step, id
	}
	return e
}

// promoteGate returns why key k of s, of which o was seen, may not begin to sign at now, and since when it counts as seen where no
// act is missing.
func (s KeySet) promoteGate(k Key, now time.Time, o Observed) (c closed, since time.Time) {
	if s.policy.Reach != ReachCopies { // else nobody reads the documents, so that nothing seen of them counts
		since = s.looked(&c, k, now, o)
	}
	return c, later(since, s.uploaded(&c, o.Uploads, now, k))
}

// looked adds to c why what was seen in public keeps the gate closed, and returns since when k counts as seen. What was seen before
// it was published does not count.
func (s KeySet) looked(c *closed, k Key, now time.Time, o Observed) time.Time {
	c.clock("the key was observed", later(later(o.Since, o.Fresh), o.Newest), o.ClockAhead, now)
	if c.act == nil && (o.Since.IsZero() || o.Fresh.IsZero() || len(o.Without) > 0) {
		c.needs(GateObserved, "the key has not been observed at the issuer's public addresses"+o.without())
		c.act.Earliest, c.act.Terms = s.promoteOpens(now, o.Cache)
	}
	if o.SharedCache != "" && s.policy.EdgeHold == nil {
		c.needs(GateEdge, fmt.Sprintf("a shared cache was seen (%s) and the policy does not say how long it holds copies", text.OneLine(o.SharedCache, 200)))
	}
	since := later(o.Since, k.PublishedAt)
	opens, terms := s.promoteOpens(since, o.Cache)
	c.until(now, GateCaches, "a cache may still hold a JWKS without the key", opens, terms)
	if now.Sub(o.Fresh) > ObservationFresh {
		c.again(GateFresh, fmt.Sprintf("the last complete observation was at %s, more than %v ago; observe again", stamp(o.Fresh), Duration(ObservationFresh)))
	}
	return since
}

// EarliestPromotion returns when the published key with that ID may be promoted if every public address has had it since
// o.Since, and so has each upload of which nobody has read back that it has it; ok is false if there is no such key. The gate
// may stay closed for longer: for a shared cache that the policy does not declare, or until a fresh observation.
func (s KeySet) EarliestPromotion(id KeyID, o Observed) (opens time.Time, ok bool) {
	k, ok := s.Key(id)
	if !ok {
		return time.Time{}, false
	}
	since := later(o.Since, k.PublishedAt)
	if s.policy.Reach != ReachCopies {
		opens, _ = s.promoteOpens(since, o.Cache)
	}
	for _, upload := range s.policy.Uploads() {
		until, _ := s.uploadOpens(upload, cmp.Or(o.Uploads.of(upload).since(k), since))
		opens = later(opens, until)
	}
	return opens, true
}

// promoteOpens is the arithmetic of the caches gate. A client counts max-age from its own fetch, which an edge may
// answer with the oldest copy it may hand out, so edge and client add up; Age is never subtracted. The observer's clock
// may be behind the issuer's and this machine's ahead of it, each by what the clock gate lets pass.
func (s KeySet) promoteOpens(observed time.Time, seen Cache) (time.Time, []Term) {
	opens, terms := s.andClocks(s.cachePolicy().CopiesRunOut(s.convergence(), observed, seen))
	if floor := observed.Add(promoteFloor); !s.dev && floor.After(opens) {
		return floor, []Term{{What: "floor", Duration: promoteFloor}}
	}
	return opens, terms
}

// andClocks adds what the clocks may differ, which in development are one.
func (s KeySet) andClocks(opens time.Time, terms []Term) (time.Time, []Term) {
	if s.dev {
		return opens, terms
	}
	return opens.Add(clocks), append(terms, Term{What: "clocks", Duration: clocks})
}

// CopiesUntil returns until when a cache may hold a copy of what was published until at, if caches keep what the policy
// declares. That is at, plus [Convergence], plus the longest time for which a shared cache hands out an old copy, plus
// the longest for which a relying party keeps its own. A policy that was lowered counts as it was before, as long as
// copies from then may last, and of what answers were seen to allow caches (zero if nobody looked) each directive counts
// that is longer than the policy's: an edge may have added it.
func (s KeySet) CopiesUntil(at time.Time, seen Cache) time.Time {
	until, _ := s.cachePolicy().CopiesRunOut(s.convergence(), at, seen)
	return until
}

// CopiesOf is [KeySet.CopiesUntil] for one relying party, by the name that a policy has for it, whether the policy declares it or
// not.
func (s KeySet) CopiesOf(party string, at time.Time, seen Cache) time.Time {
	p := s.policy.Clone()
	p.RelyingParties = []string{party}
	until, _ := p.CopiesRunOut(s.convergence(), at, seen)
	return until
}

// removeGate returns nil if all tokens signed by k, which stopped signing at k.RetiredAt, have expired at now, and each upload
// has every key that signs: where one lacks it, all of its relying party's tokens are refused, and the way back leads over k.
// That an upload still has k is no reason: it trusts a key of which no token is left, until the next upload.
func (s KeySet) removeGate(k Key, now time.Time, read Uploads) *NotYetError {
	var c closed
	switch {
	case k.State == Active:
		c.needs(GateSigning, "the key is active; retire it first")
	case k.State == Next:
		c.needs(GateSigning, "the key is next and may have signed by mistake; retire it first, or state that it has never signed")
	case s.policy.TokenLifetime == nil:
		c.needs(GateUndeclared, "the policy does not say how long tokens live, and that is never assumed")
	}
	opens, terms := s.trustedUntil(k, now)
	c.until(now, GateTokens, "tokens that it signed may still be valid", opens, terms)
	s.uploaded(&c, read, now, s.active()...)
	return c.error("remove", k.ID())
}

// trustedUntil returns when the last token of a retired key expires, with the arithmetic. A lowered lifetime counts only
// for tokens issued since; earlier tokens live as long as was allowed then.
func (s KeySet) trustedUntil(k Key, now time.Time) (time.Time, []Term) {
	lifetime := s.policy.Lifetime()
	opens := k.RetiredAt.Add(lifetime + s.skew())
	terms := []Term{{What: "retired at " + stamp(k.RetiredAt) + ", token lifetime", Duration: lifetime}, {What: "skew", Duration: s.skew()}}
	for _, h := range s.policy.HeldUntil {
		was := time.Duration(h.TokenLifetime)
		if held := earlier(k.RetiredAt.Add(was+s.skew()), h.Until); h.Until.After(now) && held.After(opens) {
			opens = held
			terms = []Term{{What: "retired at " + stamp(k.RetiredAt) + ", token lifetime before it was lowered", Duration: was}, {What: "skew", Duration: s.skew()}}
		}
	}
	return opens, terms
}

// TrustedUntil returns until when tokens of a retired key may be accepted; ok is false if the key is not retired or the
// token lifetime is undeclared.
func (s KeySet) TrustedUntil(k Key, now time.Time) (until time.Time, ok bool) {
	if k.State != Retired || s.policy.TokenLifetime == nil {
		return time.Time{}, false
	}
	until, _ = s.trustedUntil(k, now)
	return until, true
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
