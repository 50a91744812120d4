package keystore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// many returns how often a random test runs: less by default, since anyone who changes a line waits for it.
func many(long, short uint64) uint64 {
	if os.Getenv("KEYPOST_LONG") != "" {
		return long
	}
	return short
}

// walkPool returns the keys of a walk, some of them also under other names, and others under their names.
func walkPool() (pool []VerificationKey) {
	for n := range 6 {
		pool = append(pool, testKey(n))
	}
	for n := range 3 {
		pool = append(pool, must(testKey(n).WithID(KeyID(fmt.Sprintf("alias-%d", n)), "")), must(testKey(20+n).WithID(testKey(n).ID(), "")))
	}
	return pool
}

// Whatever is done to a key set, in whatever order: what comes of it can be stored and read back, publishers take it over, a key leaves
// with a line in gone and never comes back, and every published key can be revoked.
func TestRandomWalksKeepTheInvariants(t *testing.T) {
	t.Parallel()
	spec := func(k VerificationKey) Spec {
		return Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{k}, Policy: awsPolicy()}
	}
	steps := map[string]func(s KeySet, c Change, k, other VerificationKey) (KeySet, error){
		"add": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) { return s.Add(c, k) },
		"promote": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) {
			return s.Promote(c, k.ID(), Observed{})
		},
		"retire": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) { return s.Retire(c, k.ID(), Evidence{}) },
		"remove": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) { return s.Remove(c, k.ID(), Removal{}) },
		"revoke": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) {
			return s.Revoke(c, k.ID(), RevokeOptions{})
		},
		"start rotation": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) { return s.StartRotation(c, k) },
		"roll back":      func(s KeySet, c Change, _, _ VerificationKey) (KeySet, error) { return s.RollBack(c) },
		"replace": func(s KeySet, c Change, k, other VerificationKey) (KeySet, error) {
			return s.Revoke(c, k.ID(), RevokeOptions{Replacement: &other})
		},
		"keep": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) {
			if have, ok := s.Key(k.ID()); ok && !have.SameMaterial(k) {
				return s, fmt.Errorf("not walked: it says that what is served is another key than what is stored")
			}
			return s.Accept(c, 0, Decided{Keep: []VerificationKey{k}})
		},
		"bury": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) {
			return s.Accept(c, 0, Decided{Gone: []Gone{buried(k, Removed)}})
		},
		"reopen": func(s KeySet, c Change, k, _ VerificationKey) (KeySet, error) { return s.Reopen(c, spec(k)) },
		"withdraw": func(s KeySet, c Change, k, other VerificationKey) (KeySet, error) {
			if k.ID() != other.ID() { // seldom: what was withdrawn can only be opened again
				return s, ErrNotFound
			}
			return s.Withdraw(c)
		},
	}
	names, done := slices.Sorted(maps.Keys(steps)), map[string]int{}
	for seed := range many(75, 12) {
		rng, now := rand.New(rand.NewPCG(seed, 7)), t0
		pool := walkPool()
		s := must(New(change(t0), spec(pool[0])))
		var log []string
		for made := 0; made < 60 && len(log) < 600; {
			now = now.Add(time.Duration(rng.IntN(40)) * time.Minute)
			name, k, other := names[rng.IntN(len(names))], pool[rng.IntN(len(pool))], pool[rng.IntN(len(pool))]
			if s.Withdrawn() && rng.IntN(2) == 0 {
				name, k = "reopen", testKey(1000+len(log))
			}
			got, err := steps[name](s, forced(now), k, other)
			log = append(log, fmt.Sprintf("%s %s: %v", name, k.ID(), err))
			if err != nil {
				continue
			}
			made++
			done[name]++
			got.body.Generation = s.body.Generation + 1
			walked(t, name, s, got)
			if t.Failed() {
				t.Fatalf("seed %d, the last steps: %s", seed, strings.Join(log[max(0, len(log)-12):], "; "))
			}
			if s = got; made%10 == 0 {
				if s = must(Parse("prod-a", []byte(encode(t, got)))); s.Digest() != got.Digest() {
					t.Fatalf("seed %d: after %s it does not read back the same", seed, name)
				}
			}
		}
	}
	for _, name := range names {
		if done[name] == 0 {
			t.Errorf("the walks tell little: nothing came of %s", name)
		}
	}
}

// walked checks what a step has made of a key set.
func walked(t *testing.T, name string, was, is KeySet) {
	t.Helper()
	follows(t, name, is, &was)
	if lines := is.Gone(); len(lines) < len(was.Gone()) || !slices.Equal(lines[:len(was.Gone())], was.Gone()) {
		t.Errorf("%s: gone was %v and is %v", name, was.Gone(), lines)
	}
	for _, k := range was.Keys() {
		_, gone := is.GoneLine(k.VerificationKey)
		if now, still := is.Key(k.ID()); still && !now.SameMaterial(k.VerificationKey) || !still && !gone {
			t.Errorf("%s: key %s is another one, or vanished without a line in gone", name, k.ID())
		}
	}
	names := map[Fingerprint]KeyID{}
	for _, k := range is.Keys() {
		if twin := names[k.Fingerprint()]; twin != "" {
			t.Errorf("%s: keys %s and %s are the same", name, twin, k.ID())
		}
		if names[k.Fingerprint()] = k.ID(); slices.ContainsFunc(was.Gone(), func(g Gone) bool { return g.ID == k.ID() || g.Fingerprint == k.Fingerprint() }) {
			t.Errorf("%s: key %s has come back", name, k.ID())
		}
		if is.Withdrawn() {
			continue
		}
		revoked, err := is.Revoke(forced(is.latest()), k.ID(), RevokeOptions{LeaveEmpty: true})
		if err != nil {
			t.Errorf("%s: key %s cannot be revoked: %v", name, k.ID(), err)
			continue
		}
		revoked.body.Generation++
		follows(t, "revoke", revoked, &is)
	}
}
