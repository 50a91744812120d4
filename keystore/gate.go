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

// Term is one summand or bound of a gate's arithmetic, to print.
type Term struct {
	What     string
	Duration time.Duration
}

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

// MaxPoll is the longest time between two listings of a store by whatever serves it: servers and mirrors refuse another
// configuration, since gates cannot know it.
const MaxPoll = 15 * time.Second

// Convergence is how long a change of the store may take to reach every replica of the server: a poll of a remote store,
// and a minute for mirrors, replicas and the poll of their directories.
const Convergence = MaxPoll + time.Minute

// ClockSkew is how long after its exp a token may still be accepted: AWS does for 5 minutes, kube-apiserver for 1 minute.
const ClockSkew = 6 * time.Minute

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
	p := s.policy.clone()
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

// promoteGate returns nil if key k of s, of which o was seen, may begin to sign at now.
//
// Conditions that need an act come before those that need time, so that nobody waits for a gate that would not open.
func (s KeySet) promoteGate(k Key, now time.Time, o Observed) *NotYetError {
	refuse := func(g Gate, need string) *NotYetError {
		return &NotYetError{Step: "promote", Key: k.ID(), Gate: g, Need: need}
	}
	held := s.held(o.Uploads, now, k)
	if s.policy.Reach == ReachCopies { // nobody reads the documents, so that nothing seen of them counts
		return cmp.Or(held.lacks("promote", k.ID()), held.waits("promote", k.ID(), now))
	}
	since, seen := o.since(k)
	switch off := o.clock(now); {
	case off != "":
		return refuse(GateClock, off)
	case !seen:
		e := refuse(GateObserved, "the key has not been observed at the issuer's public addresses"+o.without())
		e.Earliest, e.Terms = s.promoteOpens(now, o.Cache)
		return e
	case o.SharedCache != "" && s.policy.EdgeHold == nil:
		return refuse(GateEdge, fmt.Sprintf("a shared cache was seen (%s) and the policy does not say how long it holds copies", text.OneLine(o.SharedCache, 200)))
	}
	if lacks := held.lacks("promote", k.ID()); lacks != nil {
		return lacks
	}
	opens, terms := s.promoteOpens(since, o.Cache)
	switch {
	case now.Before(opens) && !opens.Before(held.opens):
		e := refuse(GateCaches, "a cache may still hold a JWKS without the key"+o.CacheFrom)
		e.Opens, e.Terms = opens, terms
		return e
	case now.Before(held.opens):
		return held.waits("promote", k.ID(), now)
	case now.Sub(o.Fresh) > ObservationFresh:
		return refuse(GateFresh, fmt.Sprintf("the last complete observation was at %s, more than %v ago; observe again", stamp(o.Fresh), Duration(ObservationFresh)))
	}
	return held.waits("promote", k.ID(), now)
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
	for _, party := range s.policy.Uploads() {
		at := since
		if r, was := o.Uploads.Of(party); was {
			if has, does := r.Since(k.VerificationKey); does {
				at = later(has, k.PublishedAt)
			}
		}
		until, _ := s.uploadOpens(party, at)
		opens = later(opens, until)
	}
	return opens, true
}

// promoteOpens is the arithmetic of the caches gate. A client counts max-age from its own fetch, which an edge may
// answer with the oldest copy it may hand out, so edge and client add up; Age is never subtracted. The observer's clock
// may be behind the issuer's and this machine's ahead of it, each by what the clock gate lets pass.
func (s KeySet) promoteOpens(observed time.Time, seen Cache) (time.Time, []Term) {
	opens, terms := s.cachePolicy().copiesRunOut(s.convergence(), observed, seen)
	if !s.dev { // both are one machine
		opens, terms = opens.Add(clocks), append(terms, Term{"clocks", clocks})
	}
	if floor := observed.Add(promoteFloor); !s.dev && floor.After(opens) {
		return floor, []Term{{"floor", promoteFloor}}
	}
	return opens, terms
}

// copiesRunOut returns when the last cached copy of what was published until at has expired, with the arithmetic.
func (p Policy) copiesRunOut(convergence time.Duration, at time.Time, seen Cache) (time.Time, []Term) {
	seen = seen.bounded()
	edge, client := p.edge(seen), p.client(seen)
	until := at.Add(convergence + edge + client)
	terms := []Term{{"convergence", convergence}, {"edge", edge}, {"client", client}}
	if edge > p.edge(Cache{}) {
		terms[1].What = "edge (answers allow more than the policy)"
	}
	for _, h := range p.HeldUntil {
		e, c := max(edge, time.Duration(h.Edge)), max(client, time.Duration(h.Client))
		held := earlier(at.Add(convergence+e+c), h.runsOut(edge, client))
		if held.After(until) {
			until, terms = held, []Term{{"convergence", convergence}, {"edge (before the policy was lowered)", e}, {"client (before the policy was lowered)", c}}
		}
	}
	return until, terms
}

// CopiesUntil returns until when a cache may hold a copy of what was published until at, if caches keep what the policy
// declares. That is at, plus [Convergence], plus the longest time for which a shared cache hands out an old copy, plus
// the longest for which a relying party keeps its own. A policy that was lowered counts as it was before, as long as
// copies from then may last, and of what answers were seen to allow caches (zero if nobody looked) each directive counts
// that is longer than the policy's: an edge may have added it.
func (s KeySet) CopiesUntil(at time.Time, seen Cache) time.Time {
	until, _ := s.cachePolicy().copiesRunOut(s.convergence(), at, seen)
	return until
}

// CopiesOf is [KeySet.CopiesUntil] for one relying party, by the name that a policy has for it, whether the policy declares it or
// not.
func (s KeySet) CopiesOf(party string, at time.Time, seen Cache) time.Time {
	p := s.policy.clone()
	p.RelyingParties = []string{party}
	until, _ := p.copiesRunOut(s.convergence(), at, seen)
	return until
}

// removeGate returns nil if all tokens signed by k, which stopped signing at k.RetiredAt, have expired at now, and each upload
// has every key that signs: where one lacks it, all of its relying party's tokens are refused, and the way back leads over k.
// That an upload still has k is no reason: it trusts a key of which no token is left, until the next upload.
func (s KeySet) removeGate(k Key, now time.Time, read Uploads) *NotYetError {
	e := &NotYetError{Step: "remove", Key: k.ID()}
	switch {
	case k.State == Active:
		e.Gate, e.Need = GateSigning, "the key is active; retire it first"
		return e
	case k.State == Next:
		e.Gate, e.Need = GateSigning, "the key is next and may have signed by mistake; retire it first, or state that it has never signed"
		return e
	case s.policy.TokenLifetime == nil:
		e.Gate, e.Need = GateUndeclared, "the policy does not say how long tokens live, and that is never assumed"
		return e
	}
	held := s.held(read, now, s.active()...)
	if lacks := held.lacks("remove", k.ID()); lacks != nil {
		return lacks
	}
	opens, terms := s.trustedUntil(k, now)
	if !now.Before(opens) || opens.Before(held.opens) {
		return held.waits("remove", k.ID(), now)
	}
	e.Gate, e.Opens, e.Terms = GateTokens, opens, terms
	e.Need = "tokens that it signed may still be valid"
	return e
}

// trustedUntil returns when the last token of a retired key expires, with the arithmetic. A lowered lifetime counts only
// for tokens issued since; earlier tokens live as long as was allowed then.
func (s KeySet) trustedUntil(k Key, now time.Time) (time.Time, []Term) {
	lifetime := s.policy.tokenLifetime()
	opens := k.RetiredAt.Add(lifetime + s.skew())
	terms := []Term{{"retired at " + stamp(k.RetiredAt) + ", token lifetime", lifetime}, {"skew", s.skew()}}
	for _, h := range s.policy.HeldUntil {
		was := time.Duration(h.TokenLifetime)
		if held := earlier(k.RetiredAt.Add(was+s.skew()), h.Until); h.Until.After(now) && held.After(opens) {
			opens = held
			terms = []Term{{"retired at " + stamp(k.RetiredAt) + ", token lifetime before it was lowered", was}, {"skew", s.skew()}}
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
