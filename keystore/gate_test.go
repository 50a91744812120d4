package keystore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
)

// published makes a key set with key 0 active and the subject next since t0.
func published(t testing.TB, p Policy, dev bool) KeySet {
	t.Helper()
	s, err := New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{testKey(0)}, Policy: p, Dev: dev})
	if err != nil {
		t.Fatal(err)
	}
	return step(t)(s.Add(change(t0), subject))
}

// promoteAt asks to promote the subject, seen as o says and which was looked at once more a minute before at.
func promoteAt(t testing.TB, s KeySet, at time.Time, o Observed) *NotYetError {
	t.Helper()
	o.Fresh = at.Add(-time.Minute)
	_, err := s.Promote(change(at), subject.ID(), o)
	var notYet *NotYetError
	if err != nil && !errors.As(err, &notYet) {
		t.Fatal(err)
	}
	return notYet
}

// opensAfter asks how long after from the caches gate opens, and that it is closed a second before and open then.
func opensAfter(t testing.TB, s KeySet, from time.Time, o Observed) time.Duration {
	t.Helper()
	first := promoteAt(t, s, from.Add(time.Minute), o)
	if first == nil || first.Gate != gate.GateCaches {
		t.Fatalf("a minute after it was observed: %v; want gate %s", first, gate.GateCaches)
	}
	opens := first.Opens
	for range 5 { // a hold may run out while we wait, then it opens sooner than was said at first
		again := promoteAt(t, s, opens.Add(-time.Second), o)
		if again == nil {
			t.Fatalf("open already a second before %v", opens)
		}
		if again.Opens.Equal(opens) {
			break
		}
		opens = again.Opens
	}
	if late := promoteAt(t, s, opens, o); late != nil {
		t.Fatalf("closed at %v, when it was said to open: %v", opens, late)
	}
	return opens.Sub(from)
}

// TestPromoteGate is the arithmetic of "Policy and gates":
// observedAt + convergence (15 s + 1 min) + edge + client + clocks (1 min each), and at least an hour, outside development.
func TestPromoteGate(t *testing.T) {
	const conv = 75*time.Second + 2*time.Minute // with the clocks
	quick := func(p Policy) Policy {            // edge = maxAge = 1 min
		p.MaxAge, p.StaleWhileRevalidate, p.StaleIfError = DurationPtr(time.Minute), DurationPtr(0), DurationPtr(0)
		return p
	}
	for _, tt := range []struct {
		name string
		p    Policy
		look Observed
		dev  bool
		want time.Duration
	}{
		{name: "nothing declared: 24 h for unknown relying parties", want: conv + 24*time.Hour + 10*time.Minute + 24*time.Hour},
		{name: "aws", p: Policy{RelyingParties: []string{"aws"}}, want: conv + 24*time.Hour + 10*time.Minute + time.Hour},
		{name: "entra", p: quick(Policy{RelyingParties: []string{"entra"}}), want: conv + time.Minute + 24*time.Hour},
		{name: "a relying party that nobody knows", p: quick(Policy{RelyingParties: []string{"aws", "my-app"}}), want: conv + time.Minute + 24*time.Hour},
		{name: "vault: the floor", p: quick(Policy{RelyingParties: []string{"vault"}}), want: time.Hour},
		{name: "kube-apiserver follows max-age: the floor", p: quick(Policy{RelyingParties: []string{"kube-apiserver"}}), want: time.Hour},
		{name: "no floor in development", p: quick(Policy{RelyingParties: []string{"vault"}}), dev: true, want: devSlack + 2*time.Minute},
		{name: "no cloud reads a development issuer", p: quick(Policy{RelyingParties: []string{"aws", "entra"}}), dev: true, want: devSlack + 2*time.Minute},
		{name: "a long max-age counts at the edge and at the client", p: Policy{MaxAge: DurationPtr(6 * time.Hour), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"aws"}}, want: conv + 12*time.Hour},
		{name: "stale-while-revalidate and stale-if-error count at the edge", p: Policy{MaxAge: DurationPtr(time.Minute), StaleWhileRevalidate: DurationPtr(2 * time.Hour), StaleIfError: DurationPtr(3 * time.Hour), RelyingParties: []string{"aws"}}, want: conv + time.Minute + 5*time.Hour + time.Hour},
		{name: "edgeHold, when it is longer", p: quick(Policy{EdgeHold: DurationPtr(7 * time.Hour), RelyingParties: []string{"aws"}}), want: conv + 7*time.Hour + time.Hour},
		{name: "an observed max-age that is longer than declared", p: quick(Policy{RelyingParties: []string{"aws"}}), look: Observed{Cache: Cache{MaxAge: 5 * time.Hour}}, want: conv + 5*time.Hour + 5*time.Hour},
		{name: "an observed max-age that is shorter than declared", p: Policy{MaxAge: DurationPtr(2 * time.Hour), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"aws"}}, look: Observed{Cache: Cache{MaxAge: 1}}, want: conv + 4*time.Hour},
		{name: "an edge adds stale-if-error", p: quick(Policy{RelyingParties: []string{"aws"}}), look: Observed{Cache: Cache{StaleIfError: 7 * time.Hour}}, want: conv + time.Minute + 7*time.Hour + time.Hour},
		{name: "an edge adds to everything", p: Policy{RelyingParties: []string{"vault"}}, look: Observed{Cache: Cache{MaxAge: 6 * time.Minute, StaleWhileRevalidate: 7 * time.Minute, StaleIfError: 25 * time.Hour}}, want: conv + 6*time.Minute + 7*time.Minute + 25*time.Hour + 6*time.Minute},
		{name: "what an edge adds is longer than edgeHold", p: quick(Policy{EdgeHold: DurationPtr(time.Hour), RelyingParties: []string{"aws"}}), look: Observed{SharedCache: "Via", Cache: Cache{StaleIfError: 2 * time.Hour}}, want: conv + time.Minute + 2*time.Hour + time.Hour},
		{name: "a shared cache was seen, and edgeHold says how long it holds", p: quick(Policy{EdgeHold: DurationPtr(time.Hour), RelyingParties: []string{"vault"}}), look: Observed{SharedCache: "Via"}, want: conv + time.Hour + time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := published(t, tt.p, tt.dev)
			tt.look.Since = t0
			if got := opensAfter(t, s, t0, tt.look); got != tt.want {
				t.Errorf("opens %v after it was observed; want %v", got, tt.want)
			}
		})
	}
}

func TestPromoteAsksForWhatNeedsAnActFirst(t *testing.T) {
	ok := step(t)
	s := published(t, awsPolicy(), false)
	open := t0.Add(48 * time.Hour)
	cached := func(since time.Time) Observed {
		o := seen(since, open)
		o.SharedCache = "X-Cache: Hit from cloudfront"
		return o
	}
	missing := Observed{Without: []string{"https://oidc.example.com/prod-a from eu"}}
	sinceButMissing := seen(t0, open)
	sinceButMissing.Without = []string{"a", "b", "c\x1b", "d", "e"}
	for _, tt := range []struct {
		name string
		seen Observed
		gate gate.Gate
		need string
	}{
		{"nobody has looked", Observed{}, gate.GateObserved, "the key has not been observed at the issuer's public addresses"},
		{"nobody has seen it everywhere", Observed{Fresh: open}, gate.GateObserved, "has not been observed"},
		{"it is missing somewhere", missing, gate.GateObserved, "public addresses (missing: https://oidc.example.com/prod-a from eu)"},
		{"it is missing at many places", sinceButMissing, gate.GateObserved, "(missing: a, b, c? and 2 more)"},
		{"the last look is 15 min and a second old", seen(t0, open.Add(-15*time.Minute-time.Second)), gate.GateFresh, "the last complete observation was at 2026-03-03T11:44:59Z, more than 15m ago; observe again"},
		{"a shared cache that nobody has declared", cached(t0), gate.GateEdge, "a shared cache was seen (X-Cache: Hit from cloudfront)"},
		{"though the caches gate is closed as well", cached(open), gate.GateEdge, "the policy does not say how long it holds copies"},
	} {
		_, err := s.Promote(change(open), subject.ID(), tt.seen)
		var notYet *NotYetError
		if !errors.As(err, &notYet) || notYet.Gate != tt.gate || notYet.Key != subject.ID() || !notYet.Opens.IsZero() || !strings.Contains(notYet.Need, tt.need) {
			t.Errorf("%s: error %v; want gate %s", tt.name, err, tt.gate)
		}
	}
	ok(s.Promote(change(open), subject.ID(), seen(t0, open.Add(-15*time.Minute))))
	declared := awsPolicy()
	declared.EdgeHold = DurationPtr(time.Hour)
	ok(ok(s.SetPolicy(change(t0), declared)).Promote(change(open), subject.ID(), cached(t0)))
}

// A key may have been seen before it was published here, as an imported one or by a clock that is behind.
func TestWhatWasSeenBeforeThePublicationDoesNotCount(t *testing.T) {
	s := step(t)(newSet(t, awsPolicy()).Add(change(at(1)), subject))
	for _, since := range []time.Time{at(-1000), at(0), at(1), (time.Time{}).Add(1)} {
		o := seen(since, at(1))
		if got, want := opensAfter(t, s, at(1), o), 25*time.Hour+13*time.Minute+15*time.Second; got != want {
			t.Errorf("seen since %v: opens after %v; want %v", since, got, want)
		}
		got := step(t)(s.Promote(change(at(1000)), subject.ID(), seen(since, at(1000))))
		if k, _ := got.Key(subject.ID()); !k.ObservedAt.Equal(at(1)) {
			t.Errorf("seen since %v: recorded %v", since, k.ObservedAt)
		}
	}
}

// What is recorded is since when the key was seen; nothing if it was not, whatever was forced.
func TestPromoteRecordsSinceWhen(t *testing.T) {
	s, now := published(t, awsPolicy(), false), at(1000)
	without := seen(at(1), now)
	without.Without = []string{"x"}
	for name, tt := range map[string]struct {
		o    Observed
		want time.Time
	}{
		"seen":               {seen(at(1).Add(time.Millisecond), now), at(1)},
		"forced too early":   {seen(at(999.9), now), at(999.9)},
		"in the future":      {seen(now.Add(2*time.Minute), now), time.Time{}},
		"not seen":           {Observed{}, time.Time{}},
		"not everywhere":     {without, time.Time{}},
		"with a wrong clock": {Observed{Since: at(1), Fresh: now, ClockAhead: Duration(time.Hour)}, time.Time{}},
	} {
		got := step(t)(s.Promote(forced(now), subject.ID(), tt.o))
		if k, _ := got.Key(subject.ID()); k.State != Active || !k.ObservedAt.Equal(tt.want) {
			t.Errorf("%s: %s, recorded %v; want %v", name, k.State, k.ObservedAt, tt.want)
		}
		encode(t, got)
	}
}

func TestClocksOfWhoObserves(t *testing.T) {
	s, now := published(t, awsPolicy(), false), at(1000)
	with := func(ahead time.Duration) Observed {
		o := seen(t0, now)
		o.ClockAhead = Duration(ahead)
		return o
	}
	for _, tt := range []struct {
		o    Observed
		need string // empty: the gate is open
	}{
		{with(time.Minute), ""},
		{with(-time.Minute), ""},
		{with(61 * time.Second), "observed by a machine whose clock is 1m1s ahead of the server's"},
		{with(-61 * time.Second), "observed by a machine whose clock is 1m1s behind the server's"},
		{with(math.MaxInt64), "ahead of the server's"},
		{seen(t0, now.Add(time.Minute)), ""},
		{seen(t0, now.Add(61*time.Second)), "the key was observed at 2026-04-12T04:01:01Z, which lies in the future"},
		{seen(now.Add(61*time.Second), now), "the key was observed at 2026-04-12T04:01:01Z, which lies in the future"},
		{Observed{Since: t0, Fresh: now, Newest: now.Add(61 * time.Second)}, "which lies in the future"}, // one of two vantages
		{Observed{ClockAhead: Duration(time.Hour)}, "a machine whose clock is 1h ahead"},
	} {
		_, err := s.Promote(change(now), subject.ID(), tt.o)
		notYet, _ := errors.AsType[*NotYetError](err)
		if tt.need == "" && err != nil || tt.need != "" && (notYet == nil || notYet.Gate != gate.GateClock || !strings.Contains(notYet.Need, tt.need)) {
			t.Errorf("%+v: error %v; want %q", tt.o, err, tt.need)
		}
	}
}

// A header may declare any max-age; the sum must not run over and open the gate in the past.
func TestAnAbsurdMaxAgeNeverOpensTheGate(t *testing.T) {
	s := published(t, awsPolicy(), false)
	if e := promoteAt(t, s, t0.Add(50*365*24*time.Hour), Observed{Since: t0, Cache: Cache{MaxAge: math.MaxInt64, StaleWhileRevalidate: math.MaxInt64, StaleIfError: math.MaxInt64}}); e == nil || e.Gate != gate.GateCaches || e.Opens.Before(t0) {
		t.Errorf("after 50 years: %v", e)
	}
	if e := promoteAt(t, s, at(25), Observed{Since: t0, Cache: Cache{MaxAge: math.MinInt64, StaleWhileRevalidate: math.MinInt64, StaleIfError: math.MinInt64}}); e == nil || e.Gate != gate.GateCaches || e.Opens.Before(at(25)) {
		t.Errorf("a negative one: %v", e)
	}
	if until := s.Gates().CopiesUntil(t0, Cache{MaxAge: math.MaxInt64, StaleWhileRevalidate: math.MaxInt64, StaleIfError: math.MaxInt64}); until.Before(t0.Add(policy.MaxSeen)) {
		t.Errorf("copies until %v", until)
	}
}

func TestRemoveGate(t *testing.T) {
	ok := step(t)
	retiredAt := t0.Add(time.Hour)
	stopped := Evidence{Statement: "all were restarted"}
	for _, lifetime := range []time.Duration{0, 10 * time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		s := published(t, Policy{TokenLifetime: DurationPtr(lifetime)}, false)
		s = ok(s.Retire(change(retiredAt), subject.ID(), stopped))
		opens := retiredAt.Add(lifetime + 6*time.Minute)
		k, _ := s.Key(subject.ID())
		if until, known := s.Gates().TrustedUntil(k, retiredAt); !known || !until.Equal(opens) {
			t.Errorf("lifetime %v: trusted until %v (%v); want %v", lifetime, until, known, opens)
		}
		_, err := s.Remove(change(opens.Add(-time.Second)), subject.ID(), Removal{})
		var notYet *NotYetError
		if !errors.As(err, &notYet) || notYet.Gate != gate.GateTokens || !notYet.Opens.Equal(opens) || notYet.Step != "remove" {
			t.Errorf("lifetime %v: a second early: error %v", lifetime, err)
		}
		ok(s.Remove(change(opens), subject.ID(), Removal{}))
	}

	undeclared := ok(published(t, Policy{}, false).Retire(change(retiredAt), subject.ID(), stopped))
	_, err := undeclared.Remove(change(openDay), subject.ID(), Removal{})
	var notYet *NotYetError
	if !errors.As(err, &notYet) || notYet.Gate != gate.GateUndeclared || !notYet.Opens.IsZero() {
		t.Errorf("undeclared token lifetime: error %v", err)
	}
	k, _ := undeclared.Key(subject.ID())
	if _, known := undeclared.Gates().TrustedUntil(k, openDay); known {
		t.Error("undeclared token lifetime: the time until which it is trusted is known")
	}
	for name, s := range lives(t) { // whose token lifetime is declared
		for _, k := range s.Keys() {
			if until, known := s.Gates().TrustedUntil(k, openDay); known != (k.State == Retired) {
				t.Errorf("%s: key %s, which is %s, is trusted until %v (%v)", name, k.ID(), k.State, until, known)
			}
		}
	}
}

// What a plan shows is when the gate opens: for a key that was seen, the time of a new look does not matter.
func TestEarliestPromotion(t *testing.T) {
	s := published(t, awsPolicy(), false)
	listed, ok := s.Key(subject.ID())
	opens := s.Gates().EarliestPromotion(listed, Observed{Since: at(5)})
	unseen := opens.Sub(at(5))
	if want := 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour + 2*time.Minute; !ok || unseen != want {
		t.Errorf("not observed: %v after the look (%v), want %v", unseen, ok, want)
	}
	o := Observed{Since: at(1), Fresh: at(5), Cache: Cache{MaxAge: 9 * time.Hour}}
	opens = s.Gates().EarliestPromotion(listed, o)
	if want := at(1).Add(opensAfter(t, s, at(1), o)); !ok || !opens.Equal(want) {
		t.Errorf("observed: %v (%v), want %v", opens, ok, want)
	}
}

// at is hours after t0.
func at(hours float64) time.Time { return t0.Add(time.Duration(hours * float64(time.Hour))) }

func cachePolicy(edge, client time.Duration) Policy {
	return Policy{MaxAge: DurationPtr(client), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), EdgeHold: DurationPtr(edge), RelyingParties: []string{"vault"}, TokenLifetime: DurationPtr(time.Hour)}
}

// TestLoweredCacheLifetimesBindUntilTheLastOldCopyHasRunOut: a copy from before the lowering lives as long as it was
// told to.
func TestLoweredCacheLifetimesBindUntilTheLastOldCopyHasRunOut(t *testing.T) {
	const conv, h = 75*time.Second + 2*time.Minute, time.Hour // with the clocks
	slow, fast, entra := cachePolicy(10*h, 5*h), cachePolicy(h, h), cachePolicy(h, h)
	entra.RelyingParties = []string{"entra"}
	type policyChange struct {
		hours float64
		p     Policy
	}
	for _, tt := range []struct {
		name     string
		from     Policy
		changes  []policyChange
		observed float64       // hours after t0
		want     time.Duration // after t0
	}{
		{"lowered after it was observed", slow, []policyChange{{2, fast}}, 1, 1*h + conv + 15*h},
		{"observed while old copies run out", slow, []policyChange{{1, fast}}, 12, 1*h + conv + 15*h},
		{"observed when the new values take longer", slow, []policyChange{{1, fast}}, 15, 15*h + conv + 2*h},
		{"observed when old copies have run out", slow, []policyChange{{1, fast}}, 40, 40*h + conv + 2*h},
		{"edge alone", slow, []policyChange{{1, cachePolicy(h, 5*h)}}, 2, 1*h + conv + 15*h},
		{"by steps", slow, []policyChange{{1, cachePolicy(5*h, 5*h)}, {2, fast}}, 2, 1*h + conv + 15*h},
		{"raised again", fast, []policyChange{{1, slow}}, 2, 2*h + conv + 15*h},
		{"lowered and raised again", slow, []policyChange{{1, fast}, {2, slow}}, 3, 3*h + conv + 15*h},
		{"edge lowered, then a slow relying party declared, which was there all along", cachePolicy(24*h, h), []policyChange{{1, fast}, {2, entra}}, 3, 1*h + conv + 48*h},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ok := step(t)
			s := published(t, tt.from, false)
			observed := at(tt.observed)
			for _, c := range tt.changes {
				s = ok(s.SetPolicy(change(at(c.hours)), c.p))
			}
			from := at(tt.changes[len(tt.changes)-1].hours)
			if from.Before(observed) {
				from = observed
			}
			o := Observed{Since: observed} // only what is declared is to count here
			if got := opensAfter(t, s, from, o) + from.Sub(t0); got != tt.want {
				t.Errorf("opens %v after the beginning; want %v", got, tt.want)
			}
			encode(t, s)
		})
	}
}

func TestALoweredTokenLifetimeBindsTokensFromBefore(t *testing.T) {
	const h = time.Hour
	p := func(d time.Duration) Policy {
		return Policy{TokenLifetime: DurationPtr(d), RelyingParties: []string{"aws"}}
	}
	for _, tt := range []struct {
		name    string
		lowered float64 // hours after t0, from 24 h to 1 h
		retired float64
		want    time.Duration // after t0
	}{
		{"lowered, then retired: the last long token is from before the lowering", 1, 5, 25 * h},
		{"retired, then lowered: the last token is from before the retirement", 5, 1, 25 * h},
		{"lowered so long before that new tokens last longer", 1, 24.5, 25*h + 30*time.Minute},
	} {
		ok := step(t)
		s := published(t, p(24*h), false)
		lower := func() { s = ok(s.SetPolicy(change(at(tt.lowered)), p(h))) }
		retire := func() {
			s = ok(s.Retire(change(at(tt.retired)), subject.ID(), Evidence{Statement: "x"}))
		}
		if tt.lowered < tt.retired {
			lower()
			retire()
		} else {
			retire()
			lower()
		}
		opens := t0.Add(tt.want + 6*time.Minute)
		k, _ := s.Key(subject.ID())
		if until, _ := s.Gates().TrustedUntil(k, opens.Add(-time.Second)); !until.Equal(opens) {
			t.Errorf("%s: trusted until %v; want %v", tt.name, until, opens)
		}
		if _, err := s.Remove(change(opens.Add(-time.Second)), subject.ID(), Removal{}); err == nil {
			t.Errorf("%s: removed a second early", tt.name)
		}
		ok(s.Remove(change(opens), subject.ID(), Removal{}))
	}
}

// A year of tokens, once declared by mistake, is not to make promotions wait for a year.
func TestTokenAndCacheLifetimesAreHeldApart(t *testing.T) {
	ok := step(t)
	long, short := cachePolicy(10*time.Hour, 5*time.Hour), cachePolicy(time.Hour, time.Hour)
	long.TokenLifetime = DurationPtr(365 * 24 * time.Hour)
	sameCaches := long
	sameCaches.TokenLifetime = DurationPtr(time.Hour)
	s := published(t, long, false)
	s = ok(s.SetPolicy(change(at(1)), sameCaches))
	s = ok(s.SetPolicy(change(at(2)), short))
	observed := at(1000)
	if got, want := opensAfter(t, s, observed, seen(observed, observed)), 75*time.Second+2*time.Hour+2*time.Minute; got != want {
		t.Errorf("opens after %v; want %v", got, want)
	}
	if held := s.Policy().HeldUntil; len(held) != 2 {
		t.Errorf("held: %+v", held)
	}
	s = ok(s.SetPolicy(change(at(1000)), short))
	if held := s.Policy().HeldUntil; len(held) != 1 || held[0].TokenLifetime == 0 {
		t.Errorf("held once the caches have run out: %+v", held)
	}
}

// TestLoweringNeverOpensAGateSooner compares, for random policies and times, the gates of a key set whose policy was
// changed with those of one whose policy stayed, for a key that was observed and retired before the change.
func TestLoweringNeverOpensAGateSooner(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	random := func() Policy {
		d := func(most int) *Duration { return DurationPtr(time.Duration(rng.IntN(most)) * time.Minute) }
		p := Policy{StaleWhileRevalidate: d(100), StaleIfError: d(3000), TokenLifetime: d(5000)}
		*p.TokenLifetime += Duration(time.Minute)
		if rng.IntN(2) == 0 {
			p.EdgeHold = d(3000)
		}
		if rng.IntN(2) == 0 {
			p.MaxAge = DurationPtr(time.Duration(1+rng.IntN(1000)) * time.Minute)
		}
		for _, rp := range []string{"aws", "vault", "entra"} {
			if rng.IntN(2) == 0 {
				p.RelyingParties = append(p.RelyingParties, rp)
			}
		}
		return p
	}
	for range 120 {
		ok := step(t)
		was := random()
		stayed := published(t, was, false)
		stayed = ok(stayed.Add(change(t0), testKey(2)))
		stayed = ok(stayed.Retire(change(t0), testKey(2).ID(), Evidence{Statement: "x"}))
		changed, now, o := stayed, t0, Observed{Since: t0}
		for range 1 + rng.IntN(3) {
			now = now.Add(time.Duration(rng.IntN(600)) * time.Minute)
			changed = ok(changed.SetPolicy(change(now), random()))
		}
		for range 20 {
			now = now.Add(time.Duration(1+rng.IntN(600)) * time.Minute)
			if promoteAt(t, stayed, now, o) != nil && promoteAt(t, changed, now, o) == nil {
				t.Fatalf("promote is open at %v under %s, and not under %s", now.Sub(t0), describe(changed.Policy()), describe(was))
			}
			_, errStayed := stayed.Remove(change(now), testKey(2).ID(), Removal{})
			_, errChanged := changed.Remove(change(now), testKey(2).ID(), Removal{})
			if errStayed != nil && errChanged == nil {
				t.Fatalf("remove is open at %v under %s, and not under %s", now.Sub(t0), describe(changed.Policy()), describe(was))
			}
		}
	}
}

func describe(p Policy) string {
	return fmt.Sprintf("edge %v, client %v, tokens %v, held %+v", p.Edge(Cache{}), p.Client(Cache{}), p.Lifetime(), p.HeldUntil)
}

// In development one machine has every clock, and one server watches its directory.
func TestDevelopmentWaitsForNobody(t *testing.T) {
	ok := step(t)
	p := awsPolicy()
	p.TokenLifetime = DurationPtr(10 * time.Second)
	s := ok(ok(published(t, p, true).Promote(forced(t0), subject.ID(), Observed{})).Retire(change(t0), testKey(0).ID(), Evidence{Statement: "seen"}))
	if _, err := s.Remove(change(t0.Add(14*time.Second)), testKey(0).ID(), Removal{}); err == nil {
		t.Error("removed before its last token has expired")
	}
	ok(s.Remove(change(t0.Add(15*time.Second)), testKey(0).ID(), Removal{}))

	// A relying party that is taken out kept nothing either.
	was, is := cachePolicy(0, time.Minute), cachePolicy(0, time.Minute)
	was.RelyingParties = []string{"aws", "vault"}
	s = ok(published(t, was, true).SetPolicy(change(t0), is))
	k, _ := s.Key(subject.ID())
	if got, want := s.Gates().EarliestPromotion(k, Observed{Since: t0}).Sub(t0), devSlack+2*time.Minute; got != want {
		t.Errorf("after aws was taken out a next key may sign after %v; want %v", got, want)
	}
}

func TestCopiesOf(t *testing.T) {
	s := published(t, Policy{MaxAge: DurationPtr(time.Minute), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"aws", "entra"}}, false)
	for party, client := range map[string]time.Duration{"aws": time.Hour, "entra": 24 * time.Hour, "vault": time.Minute, "my-app": 24 * time.Hour} {
		if got, want := s.Gates().CopiesOf(party, t0, Cache{StaleIfError: 3 * time.Hour}).Sub(t0), 75*time.Second+3*time.Hour+time.Minute+client; got != want {
			t.Errorf("%s, an edge adds three hours: %v; want %v", party, got, want)
		}
		if got, want := s.Gates().CopiesOf(party, t0, Cache{}).Sub(t0), 75*time.Second+time.Minute+client; got != want {
			t.Errorf("%s: %v; want %v", party, got, want)
		}
	}
	if got := s.Policy().RelyingParties; !slices.Equal(got, []string{"aws", "entra"}) {
		t.Errorf("the policy has become %v", got)
	}
}

func TestCopiesUntil(t *testing.T) {
	const aws = 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour
	lowered := awsPolicy()
	lowered.StaleIfError = DurationPtr(time.Minute)
	for name, tt := range map[string]struct {
		was, is Policy
		seen    Cache
		want    time.Duration
	}{
		"aws":                                  {was: awsPolicy(), is: awsPolicy(), want: aws},
		"none declared":                        {was: Policy{}, is: Policy{}, want: aws + 23*time.Hour},
		"lowered just now":                     {was: awsPolicy(), is: lowered, want: aws},
		"a higher max-age seen":                {was: awsPolicy(), is: awsPolicy(), seen: Cache{MaxAge: 3 * time.Hour}, want: aws + 3*time.Hour - 5*time.Minute + 2*time.Hour},
		"an edge adds to it":                   {was: awsPolicy(), is: awsPolicy(), seen: Cache{StaleWhileRevalidate: 15 * time.Minute, StaleIfError: 48 * time.Hour}, want: aws + 10*time.Minute + 24*time.Hour},
		"an edge added, before it was lowered": {was: awsPolicy(), is: lowered, seen: Cache{StaleIfError: 48 * time.Hour}, want: aws + 24*time.Hour},
	} {
		s := step(t)(newSet(t, tt.was).SetPolicy(change(t0), tt.is))
		if got := s.Gates().CopiesUntil(t0, tt.seen).Sub(t0); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	s := step(t)(newSet(t, awsPolicy()).SetPolicy(change(t0), lowered))
	later := t0.Add(30 * 24 * time.Hour)
	if got, want := s.Gates().CopiesUntil(later, Cache{}).Sub(later), 75*time.Second+11*time.Minute+time.Hour; got != want {
		t.Errorf("a month after it was lowered: %v, want %v", got, want)
	}
}
