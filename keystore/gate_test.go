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

// promoteAt looks once more a minute before at, so that the look is fresh, and asks to promote the subject.
func promoteAt(t testing.TB, s KeySet, at time.Time) *NotYetError {
	t.Helper()
	look := s.observations[len(s.observations)-1]
	look.Kids = ids(s)
	s = step(t)(s.Observe(change(at.Add(-time.Minute)), look))
	_, err := s.Promote(change(at), subject.ID())
	var notYet *NotYetError
	if err != nil && !errors.As(err, &notYet) {
		t.Fatal(err)
	}
	return notYet
}

// opensAfter asks when the caches gate opens, and that it is closed a second before and open then.
func opensAfter(t testing.TB, s KeySet, observed time.Time) time.Duration {
	t.Helper()
	first := promoteAt(t, s, observed.Add(time.Minute))
	if first == nil || first.Gate != GateCaches {
		t.Fatalf("a minute after it was observed: %v; want gate %s", first, GateCaches)
	}
	opens := first.Opens
	for range 5 { // a hold may run out while we wait, then it opens sooner than was said at first
		again := promoteAt(t, s, opens.Add(-time.Second))
		if again == nil {
			t.Fatalf("open already a second before %v", opens)
		}
		if again.Opens.Equal(opens) {
			break
		}
		opens = again.Opens
	}
	if late := promoteAt(t, s, opens); late != nil {
		t.Fatalf("closed at %v, when it was said to open: %v", opens, late)
	}
	return opens.Sub(observed)
}

// TestPromoteGate is the arithmetic of "Policy and gates":
// observedAt + convergence (15 s + 1 min) + edge + client, and at least an hour outside development.
func TestPromoteGate(t *testing.T) {
	const conv = 75 * time.Second
	quick := func(p Policy) Policy { // edge = maxAge = 1 min
		p.MaxAge, p.StaleWhileRevalidate, p.StaleIfError = DurationPtr(time.Minute), DurationPtr(0), DurationPtr(0)
		return p
	}
	for _, tt := range []struct {
		name string
		p    Policy
		look Observation
		dev  bool
		want time.Duration
	}{
		{name: "nothing declared: 24 h for unknown relying parties", want: conv + 24*time.Hour + 10*time.Minute + 24*time.Hour},
		{name: "aws", p: Policy{RelyingParties: []string{"aws"}}, want: conv + 24*time.Hour + 10*time.Minute + time.Hour},
		{name: "gcp", p: quick(Policy{RelyingParties: []string{"gcp"}}), want: conv + time.Minute + time.Hour},
		{name: "entra", p: quick(Policy{RelyingParties: []string{"entra"}}), want: conv + time.Minute + 24*time.Hour},
		{name: "aws and entra", p: quick(Policy{RelyingParties: []string{"aws", "entra"}}), want: conv + time.Minute + 24*time.Hour},
		{name: "a relying party that nobody knows", p: quick(Policy{RelyingParties: []string{"aws", "my-app"}}), want: conv + time.Minute + 24*time.Hour},
		{name: "vault: the floor", p: quick(Policy{RelyingParties: []string{"vault"}}), want: time.Hour},
		{name: "kube-apiserver follows max-age: the floor", p: quick(Policy{RelyingParties: []string{"kube-apiserver"}}), want: time.Hour},
		{name: "no floor in development", p: quick(Policy{RelyingParties: []string{"vault"}}), dev: true, want: conv + 2*time.Minute},
		{name: "seconds in development", p: Policy{MaxAge: DurationPtr(time.Second), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"vault"}}, dev: true, want: conv + 2*time.Second},
		{name: "a long max-age counts at the edge and at the client", p: Policy{MaxAge: DurationPtr(6 * time.Hour), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"aws"}}, want: conv + 12*time.Hour},
		{name: "stale-while-revalidate and stale-if-error count at the edge", p: Policy{MaxAge: DurationPtr(time.Minute), StaleWhileRevalidate: DurationPtr(2 * time.Hour), StaleIfError: DurationPtr(3 * time.Hour), RelyingParties: []string{"aws"}}, want: conv + time.Minute + 5*time.Hour + time.Hour},
		{name: "edgeHold, when it is longer", p: quick(Policy{EdgeHold: DurationPtr(7 * time.Hour), RelyingParties: []string{"aws"}}), want: conv + 7*time.Hour + time.Hour},
		{name: "edgeHold, when it is shorter", p: Policy{EdgeHold: DurationPtr(time.Hour), RelyingParties: []string{"aws"}}, want: conv + 24*time.Hour + 10*time.Minute + time.Hour},
		{name: "an observed max-age that is longer than declared", p: quick(Policy{RelyingParties: []string{"aws"}}), look: Observation{MaxAge: Duration(5 * time.Hour)}, want: conv + 5*time.Hour + 5*time.Hour},
		{name: "an observed max-age that is shorter than declared", p: Policy{MaxAge: DurationPtr(2 * time.Hour), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: []string{"aws"}}, look: Observation{MaxAge: 1}, want: conv + 4*time.Hour},
		{name: "a shared cache was seen, and edgeHold says how long it holds", p: quick(Policy{EdgeHold: DurationPtr(time.Hour), RelyingParties: []string{"vault"}}), look: Observation{SharedCache: "Via"}, want: conv + time.Hour + time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := published(t, tt.p, tt.dev)
			tt.look.Complete, tt.look.Kids = true, ids(s)
			s = step(t)(s.Observe(change(t0), tt.look))
			if got := opensAfter(t, s, t0); got != tt.want {
				t.Errorf("opens %v after it was observed; want %v", got, tt.want)
			}
		})
	}
}

func TestPromoteAsksForWhatNeedsAnActFirst(t *testing.T) {
	ok := step(t)
	s := published(t, awsPolicy(), false)
	all := seen(s)
	cached := all
	cached.SharedCache, cached.Complete = "X-Cache: Hit from cloudfront", false
	open := t0.Add(48 * time.Hour)
	looks := func(s KeySet, at time.Time, all ...Observation) KeySet {
		for _, o := range all {
			s = ok(s.Observe(change(at), o))
		}
		return s
	}
	seenOnce := looks(s, t0, all)
	for _, tt := range []struct {
		name string
		s    KeySet
		gate Gate
		need string
	}{
		{"nobody has looked", s, GateObserved, "the key has not been observed at the issuer's public addresses"},
		{"nobody has seen it everywhere", looks(s, t0, Observation{Kids: all.Kids}), GateObserved, "has not been observed"},
		{"the last look is 15 min and a second old", looks(seenOnce, open.Add(-15*time.Minute-time.Second), all), GateFresh, "the last complete observation was at 2026-03-03T11:44:59Z, more than 15m ago; observe again"},
		{"the last complete look is too old", looks(looks(seenOnce, open.Add(-time.Hour), all), open, Observation{Kids: all.Kids}), GateFresh, "observe again"},
		{"a shared cache of which nothing is declared", looks(looks(seenOnce, t0, cached), open, all), GateEdge, "a shared cache was seen (X-Cache: Hit from cloudfront)"},
		{"though the caches gate is closed as well", looks(s, open, cached, all), GateEdge, "the policy does not say how long it holds copies"},
	} {
		_, err := tt.s.Promote(change(open), subject.ID())
		var notYet *NotYetError
		if !errors.As(err, &notYet) || notYet.Gate != tt.gate || notYet.Key != subject.ID() || !notYet.Opens.IsZero() || !strings.Contains(notYet.Need, tt.need) {
			t.Errorf("%s: error %v; want gate %s", tt.name, err, tt.gate)
		}
	}
	ok(looks(seenOnce, open.Add(-15*time.Minute), all).Promote(change(open), subject.ID()))
	declared := awsPolicy()
	declared.EdgeHold = DurationPtr(time.Hour)
	ok(looks(ok(looks(seenOnce, t0, cached).SetPolicy(change(t0), declared)), open, all).Promote(change(open), subject.ID()))
}

func TestASharedCacheFromBeforeThePublicationDoesNotCount(t *testing.T) {
	ok := step(t)
	s := newSet(t, awsPolicy())
	s = ok(s.Observe(change(t0), Observation{Complete: true, Kids: ids(s), SharedCache: "Via", MaxAge: Duration(300 * time.Hour)}))
	s = ok(s.Add(change(t0.Add(time.Hour)), subject))
	s = ok(s.Observe(change(t0.Add(time.Hour)), Observation{Complete: true, Kids: ids(s)}))
	if got, want := opensAfter(t, s, t0.Add(time.Hour)), 25*time.Hour+11*time.Minute+15*time.Second; got != want {
		t.Errorf("opens after %v; want %v", got, want)
	}
}

// A header may declare any max-age; the sum must not run over and open the gate in the past.
func TestAnAbsurdMaxAgeNeverOpensTheGate(t *testing.T) {
	s := published(t, awsPolicy(), false)
	s = step(t)(s.Observe(change(t0), Observation{Complete: true, Kids: ids(s), MaxAge: math.MaxInt64}))
	if e := promoteAt(t, s, t0.Add(50*365*24*time.Hour)); e == nil || e.Gate != GateCaches || e.Opens.Before(t0) {
		t.Errorf("after 50 years: %v", e)
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
		if until, known := s.TrustedUntil(k, retiredAt); !known || !until.Equal(opens) {
			t.Errorf("lifetime %v: trusted until %v (%v); want %v", lifetime, until, known, opens)
		}
		_, err := s.Remove(change(opens.Add(-time.Second)), subject.ID(), false)
		var notYet *NotYetError
		if !errors.As(err, &notYet) || notYet.Gate != GateTokens || !notYet.Opens.Equal(opens) || notYet.Step != "remove" {
			t.Errorf("lifetime %v: a second early: error %v", lifetime, err)
		}
		ok(s.Remove(change(opens), subject.ID(), false))
	}

	undeclared := ok(published(t, Policy{}, false).Retire(change(retiredAt), subject.ID(), stopped))
	_, err := undeclared.Remove(change(openDay), subject.ID(), false)
	var notYet *NotYetError
	if !errors.As(err, &notYet) || notYet.Gate != GateUndeclared || !notYet.Opens.IsZero() {
		t.Errorf("undeclared token lifetime: error %v", err)
	}
	k, _ := undeclared.Key(subject.ID())
	if _, known := undeclared.TrustedUntil(k, openDay); known {
		t.Error("undeclared token lifetime: the time until which it is trusted is known")
	}
	for name, s := range lives(t) { // whose token lifetime is declared
		for _, k := range s.Keys() {
			if until, known := s.TrustedUntil(k, openDay); known != (k.State == Retired) {
				t.Errorf("%s: key %s, which is %s, is trusted until %v (%v)", name, k.ID(), k.State, until, known)
			}
		}
	}
}

// What a plan shows is when the gate opens: for a key that was seen, the time of a new look does not matter.
func TestEarliestPromotion(t *testing.T) {
	s := published(t, awsPolicy(), false)
	opens, ok := s.EarliestPromotion(subject.ID(), at(5))
	unseen := opens.Sub(at(5))
	if want := 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour; !ok || unseen != want {
		t.Errorf("not observed: %v after the look (%v), want %v", unseen, ok, want)
	}
	s = step(t)(s.Observe(change(at(1)), seen(s)))
	opens, ok = s.EarliestPromotion(subject.ID(), at(5))
	if want := at(1).Add(opensAfter(t, s, at(1))); !ok || !opens.Equal(want) {
		t.Errorf("observed: %v (%v), want %v", opens, ok, want)
	}
	if _, ok := s.EarliestPromotion("nobody", at(5)); ok {
		t.Error("a key that is not there has a time")
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
	const conv, h = 75 * time.Second, time.Hour
	slow, fast, entra := cachePolicy(10*h, 5*h), cachePolicy(h, h), cachePolicy(h, h)
	entra.RelyingParties = []string{"entra"}
	slowEdge := cachePolicy(10*h, h)
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
		{"lowered just before it was observed", slow, []policyChange{{1, fast}}, 1, 1*h + conv + 15*h},
		{"lowered after it was observed", slow, []policyChange{{2, fast}}, 1, 1*h + conv + 15*h},
		{"observed while old copies run out", slow, []policyChange{{1, fast}}, 12, 1*h + conv + 15*h},
		{"observed when the new values take longer", slow, []policyChange{{1, fast}}, 15, 15*h + conv + 2*h},
		{"observed when old copies have run out", slow, []policyChange{{1, fast}}, 40, 40*h + conv + 2*h},
		{"edge alone", slow, []policyChange{{1, cachePolicy(h, 5*h)}}, 2, 1*h + conv + 15*h},
		{"client alone", slow, []policyChange{{1, cachePolicy(10*h, h)}}, 2, 1*h + conv + 15*h},
		{"by steps", slow, []policyChange{{1, cachePolicy(5*h, 5*h)}, {2, fast}}, 2, 1*h + conv + 15*h},
		{"raised again", fast, []policyChange{{1, slow}}, 2, 2*h + conv + 15*h},
		{"lowered and raised again", slow, []policyChange{{1, fast}, {2, slow}}, 3, 3*h + conv + 15*h},
		{"edge lowered, then a slow relying party declared, which was there all along", cachePolicy(24*h, h), []policyChange{{1, fast}, {2, entra}}, 3, 1*h + conv + 48*h},
		{"and the policy set again meanwhile", cachePolicy(24*h, h), []policyChange{{1, fast}, {2, entra}, {30, entra}}, 3, 1*h + conv + 48*h},
		{"client lowered as the edge is raised", entra, []policyChange{{1, slowEdge}}, 1, 1*h + conv + 34*h},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ok := step(t)
			s := published(t, tt.from, false)
			observed := at(tt.observed)
			for _, c := range tt.changes {
				if at(c.hours).After(observed) && s.observations == nil {
					s = ok(s.Observe(change(observed), seen(s)))
				}
				s = ok(s.SetPolicy(change(at(c.hours)), c.p))
			}
			if s.observations == nil {
				s = ok(s.Observe(change(observed), seen(s)))
			}
			for i := range s.observations { // only what is declared is to count here
				s.observations[i].MaxAge = 0
			}
			from := at(tt.changes[len(tt.changes)-1].hours)
			if from.Before(observed) {
				from = observed
			}
			if got := opensAfter(t, s, from) + from.Sub(t0); got != tt.want {
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
		{"lowered long before", 1, 100, 101 * h},
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
		if until, _ := s.TrustedUntil(k, opens.Add(-time.Second)); !until.Equal(opens) {
			t.Errorf("%s: trusted until %v; want %v", tt.name, until, opens)
		}
		if _, err := s.Remove(change(opens.Add(-time.Second)), subject.ID(), false); err == nil {
			t.Errorf("%s: removed a second early", tt.name)
		}
		ok(s.Remove(change(opens), subject.ID(), false))
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
	s = ok(s.Observe(change(observed), seen(s)))
	if got, want := opensAfter(t, s, observed), 75*time.Second+2*time.Hour; got != want {
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
		stayed = ok(stayed.Observe(change(t0), Observation{Complete: true, Kids: ids(stayed)}))
		changed, now := stayed, t0
		for range 1 + rng.IntN(3) {
			now = now.Add(time.Duration(rng.IntN(600)) * time.Minute)
			changed = ok(changed.SetPolicy(change(now), random()))
		}
		for range 20 {
			now = now.Add(time.Duration(1+rng.IntN(600)) * time.Minute)
			if promoteAt(t, stayed, now) != nil && promoteAt(t, changed, now) == nil {
				t.Fatalf("promote is open at %v under %s, and not under %s", now.Sub(t0), describe(changed.Policy()), describe(was))
			}
			_, errStayed := stayed.Remove(change(now), testKey(2).ID(), false)
			_, errChanged := changed.Remove(change(now), testKey(2).ID(), false)
			if errStayed != nil && errChanged == nil {
				t.Fatalf("remove is open at %v under %s, and not under %s", now.Sub(t0), describe(changed.Policy()), describe(was))
			}
		}
	}
}

func describe(p Policy) string {
	return fmt.Sprintf("edge %v, client %v, tokens %v, held %+v", p.edge(0), p.client(0), p.tokenLifetime(), p.HeldUntil)
}

// TestNotYetSentences: these are read by people who wait, and printed by every command that exits with 75.
func TestNotYetSentences(t *testing.T) {
	ok := step(t)
	id := "promote key " + string(subject.ID()) + ": not yet: "
	next := published(t, awsPolicy(), false)
	observed := ok(next.Observe(change(t0), seen(next)))
	vault := cachePolicy(time.Minute, time.Minute)
	atFloor := published(t, vault, false)
	atFloor = ok(atFloor.Observe(change(t0), Observation{Complete: true, Kids: ids(atFloor)}))
	lowered := ok(observed.SetPolicy(change(t0), vault))
	retired := ok(observed.Retire(change(t0), subject.ID(), Evidence{Statement: "x"}))
	shorter := awsPolicy()
	shorter.TokenLifetime = DurationPtr(10 * time.Minute)
	retiredLowered := ok(retired.SetPolicy(change(t0), shorter))
	cached := seen(next)
	cached.SharedCache = "Via: 1.1 varnish"
	soon := change(t0.Add(time.Minute))

	promote := func(s KeySet) error { _, err := s.Promote(soon, subject.ID()); return err }
	remove := func(s KeySet, id KeyID) error { _, err := s.Remove(soon, id, false); return err }
	retire := func(s KeySet, ev Evidence) error { _, err := s.Retire(soon, subject.ID(), ev); return err }
	_, clock := observed.Promote(change(t0.Add(-time.Hour)), subject.ID())
	_, withdraw := observed.Withdraw(soon)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{promote(next), id + "the key has not been observed at the issuer's public addresses; not before 2026-03-02T13:12:15Z, and only after it was observed (convergence 1m15s + edge 24h10m + client 1h)"},
		{promote(observed), id + "a cache may still hold a JWKS without the key; possible from 2026-03-02T13:11:15Z (convergence 1m15s + edge 24h10m + client 1h)"},
		{promote(atFloor), id + "a cache may still hold a JWKS without the key; possible from 2026-03-01T13:00:00Z (floor 1h)"},
		{promote(lowered), id + "a cache may still hold a JWKS without the key; possible from 2026-03-02T13:11:15Z (convergence 1m15s + edge (before the policy was lowered) 24h10m + client (before the policy was lowered) 1h)"},
		{promote(ok(next.Observe(change(t0), cached))), id + "a shared cache was seen (Via: 1.1 varnish) and the policy does not say how long it holds copies"},
		{clock, id + "the key set records the time 2026-03-01T12:00:00Z, which lies in the future by this machine's clock; check the clock; possible from 2026-03-01T11:59:00Z"},
		{remove(retired, subject.ID()), "remove key " + string(subject.ID()) + ": not yet: tokens that it signed may still be valid; possible from 2026-03-01T13:06:00Z (retired at 2026-03-01T12:00:00Z, token lifetime 1h + skew 6m)"},
		{remove(retiredLowered, subject.ID()), "remove key " + string(subject.ID()) + ": not yet: tokens that it signed may still be valid; possible from 2026-03-01T13:06:00Z (retired at 2026-03-01T12:00:00Z, token lifetime before it was lowered 1h + skew 6m)"},
		{remove(next, subject.ID()), "remove key " + string(subject.ID()) + ": not yet: the key is next and may have signed by mistake; retire it first, or state that it has never signed"},
		{remove(next, testKey(0).ID()), "remove key " + string(testKey(0).ID()) + ": not yet: the key is active; retire it first"},
		{retire(next, Evidence{}), "retire key " + string(subject.ID()) + ": not yet: nothing shows that no kube-apiserver signs with it"},
		{retire(next, Evidence{Minted: map[string]KeyID{"10.0.0.1:6443": subject.ID()}}), "retire key " + string(subject.ID()) + ": not yet: the kube-apiserver 10.0.0.1:6443 signs with it"},
		{withdraw, "withdraw: not yet: key " + string(testKey(0).ID()) + " is active; retire it when the cluster signs with it no more"},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", tt.err, tt.want)
		}
	}
}

func TestNotYetTermsAddUp(t *testing.T) {
	s := published(t, awsPolicy(), false)
	s = step(t)(s.Observe(change(t0), seen(s)))
	_, err := s.Promote(change(t0.Add(time.Minute)), subject.ID())
	var notYet *NotYetError
	if !errors.As(err, &notYet) {
		t.Fatal(err)
	}
	want := []Term{{"convergence", 75 * time.Second}, {"edge", 24*time.Hour + 10*time.Minute}, {"client", time.Hour}}
	if !slices.Equal(notYet.Terms, want) {
		t.Errorf("terms %v; want %v", notYet.Terms, want)
	}
	sum := t0
	for _, term := range notYet.Terms {
		sum = sum.Add(term.Duration)
	}
	if !sum.Equal(notYet.Opens) {
		t.Errorf("the terms lead to %v, it opens at %v", sum, notYet.Opens)
	}
}

// How long a revoked key may still be trusted is what the promotion gate counts on for a new one: convergence, the
// edge, and the slowest relying party.
func TestCopiesUntil(t *testing.T) {
	const aws = 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour
	lowered := awsPolicy()
	lowered.StaleIfError = DurationPtr(time.Minute)
	for name, tt := range map[string]struct {
		was, is Policy
		seen    time.Duration
		want    time.Duration
	}{
		"aws":                     {was: awsPolicy(), is: awsPolicy(), want: aws},
		"none declared":           {was: Policy{}, is: Policy{}, want: aws + 23*time.Hour},
		"tokens lived longer":     {was: Policy{RelyingParties: []string{"aws"}, TokenLifetime: DurationPtr(1000 * time.Hour)}, is: awsPolicy(), want: aws},
		"lowered just now":        {was: awsPolicy(), is: lowered, want: aws},
		"a higher max-age seen":   {was: awsPolicy(), is: awsPolicy(), seen: 3 * time.Hour, want: aws + 3*time.Hour - 5*time.Minute + 2*time.Hour},
		"aws, longer at the edge": {was: Policy{RelyingParties: []string{"aws"}, EdgeHold: DurationPtr(48 * time.Hour)}, is: Policy{RelyingParties: []string{"aws"}, EdgeHold: DurationPtr(48 * time.Hour)}, want: 75*time.Second + 49*time.Hour},
	} {
		s := step(t)(newSet(t, tt.was).SetPolicy(change(t0), tt.is))
		if tt.seen > 0 {
			s = step(t)(s.Observe(change(t0), Observation{Complete: true, MaxAge: Duration(tt.seen)}))
		}
		if got := s.CopiesUntil(t0).Sub(t0); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	s := step(t)(newSet(t, awsPolicy()).SetPolicy(change(t0), lowered))
	later := t0.Add(30 * 24 * time.Hour)
	if got, want := s.CopiesUntil(later).Sub(later), 75*time.Second+11*time.Minute+time.Hour; got != want {
		t.Errorf("a month after it was lowered: %v, want %v", got, want)
	}
}
