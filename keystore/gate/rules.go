package gate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/policy"
)

// Rules are what a key set declares, which its gates count with.
type Rules struct {
	Policy policy.Policy
	Dev    bool // a development key set
}

// devSlack takes the place of [policy.Convergence] and [policy.ClockSkew] in development: one server watches its directory, and its clock
// is everybody's. A rotation can be tried in a minute.
const devSlack = 5 * time.Second

// convergence is how long a change may take to be served everywhere.
func (g Rules) convergence() time.Duration { return g.unlessDev(policy.Convergence) }

func (g Rules) unlessDev(d time.Duration) time.Duration {
	if g.Dev {
		return devSlack
	}
	return d
}

// cachePolicy returns what is known of caches and relying parties. No cloud reads a development issuer, whatever the policy
// declares: it has a port, or a certificate that nobody trusts.
func (g Rules) cachePolicy() policy.Policy {
	if !g.Dev {
		return g.Policy
	}
	p := g.Policy.Clone()
	p.RelyingParties = []string{"vault"}
	for i := range p.HeldUntil {
		p.HeldUntil[i].Client = 0 // of a relying party that was taken out
	}
	return p
}

// skew is how long after its exp a token may still be accepted.
func (g Rules) skew() time.Duration { return g.unlessDev(policy.ClockSkew) }

// Constants of the gates.
const (
	promoteFloor     = time.Hour          // never sooner, outside development
	ObservationFresh = 15 * time.Minute   // how old a complete observation may be
	ClockTolerance   = time.Minute        // how far apart two clocks may be before one of them counts as wrong
	clocks           = 2 * ClockTolerance // by how much the clocks of who observed and who promotes may differ
)

// Promote returns why key k, seen as o says, may not begin to sign at now, and since when it counts as seen: zero where an act is
// missing.
func (g Rules) Promote(k key.Key, now time.Time, o Observed) (*NotYetError, time.Time) {
	var c closed
	var since time.Time
	if g.Policy.Reach != policy.ReachCopies { // else nobody reads the documents, so that nothing seen of them counts
		since = g.looked(&c, k, now, o)
	}
	since = later(since, g.uploaded(&c, o.Uploads, now, k))
	if c.act != nil {
		since = time.Time{}
	}
	return c.error("promote", k.ID()), since
}

// looked adds to c why what was seen in public keeps the gate closed, and returns since when k counts as seen. What was seen before
// it was published does not count.
func (g Rules) looked(c *closed, k key.Key, now time.Time, o Observed) time.Time {
	c.clock("the key was observed", later(later(o.Since, o.Fresh), o.Newest), o.ClockAhead, now)
	if c.act == nil && (o.Since.IsZero() || o.Fresh.IsZero() || len(o.Without) > 0) {
		c.needs(GateObserved, "the key has not been observed at the issuer's public addresses"+o.without())
		c.act.Earliest, c.act.Terms = g.promoteOpens(now, o.Cache)
	}
	if o.SharedCache != "" && g.Policy.EdgeHold == nil {
		c.needs(GateEdge, fmt.Sprintf("a shared cache was seen (%s) and the policy does not say how long it holds copies", text.OneLine(o.SharedCache, 200)))
	}
	since := later(o.Since, k.PublishedAt)
	opens, terms := g.promoteOpens(since, o.Cache)
	c.until(now, NotYetError{Gate: GateCaches, Need: "a cache may still hold a JWKS without the key", Opens: opens, Terms: terms})
	if now.Sub(o.Fresh) > ObservationFresh {
		c.again(GateFresh, fmt.Sprintf("the last complete observation was at %s, more than %v ago; observe again", stamp(o.Fresh), policy.Duration(ObservationFresh)))
	}
	g.fetched(c, k, since, o)
	return since
}

// fetched adds to c which relying parties have shown that they may not have the key: one that polls keeps its old copy while its polls
// fail. It opens no gate sooner, as a relying party may have more caches than the one that it shows. A reading from before k was
// published says nothing about k.
func (g Rules) fetched(c *closed, k key.Key, since time.Time, o Observed) {
	p := g.cachePolicy().Clone()
	p.RelyingParties = []string{"vault"} // what its fetch may be answered from, and nothing that it keeps
	gone, _ := p.CopiesRunOut(g.convergence(), since, o.Cache)
	gone = gone.Add(g.unlessDev(clocks))
	for _, f := range o.Fetches {
		if slices.Contains(g.Policy.RelyingParties, f.Party) && !f.Read.Before(k.PublishedAt) && f.At.Before(gone) {
			c.again(GateFetched, fmt.Sprintf("%s showed at %s that it last fetched the keys at %s, and a fetch before %s may have been answered without this one; record a later fetch",
				text.OneLine(f.Party, 100), stamp(f.Read), stamp(f.At), stamp(gone)))
		}
	}
}

// EarliestPromotion returns when a published key may be promoted if every public address has had it since o.Since, and so has each
// upload that nobody has read back with the key. The gate may stay closed for longer: for a shared cache that the policy does
// not declare, or until a fresh observation.
func (g Rules) EarliestPromotion(k key.Key, o Observed) (opens time.Time) {
	since := later(o.Since, k.PublishedAt)
	if g.Policy.Reach != policy.ReachCopies {
		opens, _ = g.promoteOpens(since, o.Cache)
	}
	for _, upload := range g.Policy.Uploads() {
		until, _ := g.uploadOpens(upload, cmp.Or(o.Uploads.of(upload).since(k), since))
		opens = later(opens, until)
	}
	return opens
}

// promoteOpens is the arithmetic of the caches gate. A client counts max-age from its own fetch, which an edge may
// answer with the oldest copy it may hand out, so edge and client add up; Age is never subtracted. The observer's clock
// may be behind the issuer's and this machine's ahead of it, each by what the clock gate lets pass.
func (g Rules) promoteOpens(observed time.Time, seen policy.Cache) (time.Time, []policy.Term) {
	opens, terms := g.andClocks(g.cachePolicy().CopiesRunOut(g.convergence(), observed, seen))
	if floor := observed.Add(promoteFloor); !g.Dev && floor.After(opens) {
		return floor, []policy.Term{{What: "floor", Duration: promoteFloor}}
	}
	return opens, terms
}

// andClocks adds what the clocks may differ, which in development are one.
func (g Rules) andClocks(opens time.Time, terms []policy.Term) (time.Time, []policy.Term) {
	if g.Dev {
		return opens, terms
	}
	return opens.Add(clocks), append(terms, policy.Term{What: "clocks", Duration: clocks})
}

// CopiesUntil returns until when a cache may hold a copy of what was published until at, if caches keep what the policy
// declares. That is at, plus [policy.Convergence], plus the longest time for which a shared cache hands out an old copy, plus
// the longest for which a relying party keeps its own. A policy that was lowered counts as it was before, as long as
// copies from then may last, and of what answers were seen to allow caches (zero if nobody looked) each directive counts
// that is longer than the policy's: an edge may have added it.
func (g Rules) CopiesUntil(at time.Time, seen policy.Cache) time.Time {
	until, _ := g.cachePolicy().CopiesRunOut(g.convergence(), at, seen)
	return until
}

// CopiesOf is [Rules.CopiesUntil] for one relying party, by the name that a policy has for it, whether the policy declares it or
// not.
func (g Rules) CopiesOf(party string, at time.Time, seen policy.Cache) time.Time {
	p := g.Policy.Clone()
	p.RelyingParties = []string{party}
	until, _ := p.CopiesRunOut(g.convergence(), at, seen)
	return until
}

// Remove returns nil if all tokens signed by k, which stopped signing at k.RetiredAt, have expired at now, and each upload has every
// key that signs (active lists them): where one does not have it, all of its relying party's tokens are refused, and the way back
// leads over k. That an upload still has k is not a reason: it trusts a key that has no token left, until the next upload.
func (g Rules) Remove(k key.Key, now time.Time, read Uploads, active []key.Key) *NotYetError {
	var c closed
	switch {
	case k.State == key.Active:
		c.needs(GateSigning, "the key is active; retire it first")
	case k.State == key.Next:
		c.needs(GateSigning, "the key is next and may have signed by mistake; retire it first, or state that it has never signed")
	case g.Policy.TokenLifetime == nil:
		c.needs(GateUndeclared, "the policy does not say how long tokens live, and that is never assumed")
	}
	opens, terms := g.trustedUntil(k, now)
	c.until(now, NotYetError{Gate: GateTokens, Need: "tokens that it signed may still be valid", Opens: opens, Terms: terms})
	g.uploaded(&c, read, now, active...)
	return c.error("remove", k.ID())
}

// trustedUntil returns when the last token of a retired key expires, with the arithmetic. A lowered lifetime counts only
// for tokens issued since; earlier tokens live as long as was allowed then.
func (g Rules) trustedUntil(k key.Key, now time.Time) (time.Time, []policy.Term) {
	lifetime := g.Policy.Lifetime()
	opens := k.RetiredAt.Add(lifetime + g.skew())
	terms := []policy.Term{{What: "retired at " + stamp(k.RetiredAt) + ", token lifetime", Duration: lifetime}, {What: "skew", Duration: g.skew()}}
	for _, h := range g.Policy.HeldUntil {
		was := time.Duration(h.TokenLifetime)
		if held := earlier(k.RetiredAt.Add(was+g.skew()), h.Until); h.Until.After(now) && held.After(opens) {
			opens = held
			terms = []policy.Term{{What: "retired at " + stamp(k.RetiredAt) + ", token lifetime before it was lowered", Duration: was}, {What: "skew", Duration: g.skew()}}
		}
	}
	return opens, terms
}

// TrustedUntil returns until when tokens of a retired key may be accepted; ok is false if the key is not retired or the
// token lifetime is undeclared.
func (g Rules) TrustedUntil(k key.Key, now time.Time) (until time.Time, ok bool) {
	if k.State != key.Retired || g.Policy.TokenLifetime == nil {
		return time.Time{}, false
	}
	until, _ = g.trustedUntil(k, now)
	return until, true
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
