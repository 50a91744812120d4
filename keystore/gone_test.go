package keystore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// withTwins is a stored key set in which keys 0 and 1 are published under two kids each, as an issuer had them that was
// taken over by an earlier version.
func withTwins(t *testing.T) KeySet {
	t.Helper()
	s := step(t)(newSet(t, awsPolicy()).Add(change(t0), testKey(1)))
	d := tree(t, s)
	for n, state := range map[int]State{0: Retired, 1: Next} {
		twin := must(testKey(n).WithID(KeyID(fmt.Sprintf("twin-%d", n)), ""))
		specOf(d)["keys"] = append(specOf(d)["keys"].([]any), keyEntry(Key{VerificationKey: twin, State: state, PublishedAt: t0, RetiredAt: openDay})) //nolint:forcetypeassert // the test wrote it
	}
	s, err := parseTree(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAKeyUnderTwoKidsLeavesUnderBoth(t *testing.T) {
	s := withTwins(t)
	for name, do := range map[string]func() (KeySet, error){
		"revoke":           func() (KeySet, error) { return s.Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{}) },
		"revoke the other": func() (KeySet, error) { return s.Revoke(because(openDay, "lost"), "twin-0", RevokeOptions{}) },
		"accept": func() (KeySet, error) {
			return s.Accept(because(openDay, "x"), 0, Decided{Gone: []Gone{buried(testKey(0), Removed)}})
		},
		"remove by force": func() (KeySet, error) { return s.Remove(forced(openDay), "twin-0", Removal{}) },
	} {
		got, err := do()
		if err != nil || !slices.Equal(ids(got), []KeyID{testKey(1).ID(), "twin-1"}) || len(got.Gone()) != 2 {
			t.Errorf("%s: keys %v, gone %v, error %v", name, ids(got), got.Gone(), err)
			continue
		}
		got.body.Generation++
		follows(t, name, got, &s)
	}
	var notYet *NotYetError
	if _, err := s.Remove(change(openDay.AddDate(1, 0, 0)), "twin-0", Removal{}); !errors.As(err, &notYet) || notYet.Key != testKey(0).ID() {
		t.Errorf("remove of a retired key whose twin is active: error %v", err)
	}
	if got, err := s.Remove(change(openDay), "twin-1", Removal{NeverSigned: true}); err != nil || len(got.Keys()) != 2 {
		t.Errorf("remove of a key that never signed: keys %v, error %v", ids(got), err)
	}
	if _, err := s.Add(change(openDay), must(testKey(1).WithID("third", ""))); err == nil || !strings.Contains(err.Error(), "publishes it already") {
		t.Errorf("add under a third kid: error %v", err)
	}
}

// A URL that is given out again brings the lines of all key sets that had it, and what their tombstones still held.
func TestRemainsBarAKeyInAnotherKeySet(t *testing.T) {
	ok := step(t)
	legacy := must(testKey(0).WithID("1", ""))
	first := ok(New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{legacy}}))
	first = ok(first.Withdraw(forced(t0)))
	second := ok(New(change(t0), Spec{Name: "prod-b", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{must(testKey(1).WithID("1", ""))}}))
	second = ok(second.Withdraw(forced(t0)))
	remains := append(first.Remains(), second.Remains()...)
	for name, k := range map[string]VerificationKey{
		"the kid":                      must(testKey(2).WithID("1", "")),
		"the key, its computed ID":     testKey(0),
		"the second, a computed ID":    must(testKey(1).WithID(testKey(5).ID(), "")),
		"the second, the first's name": must(testKey(1).WithID(testKey(0).ID(), "")),
	} {
		spec := Spec{Name: "prod-c", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{k}, Gone: remains}
		if _, err := New(change(openDay), spec); !errors.Is(err, ErrGoneReturned) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	third := ok(New(change(openDay), Spec{Name: "prod-c", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{testKey(2)}, Gone: remains}))
	if g := third.Gone(); len(g) != 2 || g[0].ID != "1" || g[1].ID != testKey(1).ID() || g[1].Fingerprint != testKey(1).Fingerprint() {
		t.Errorf("gone: %+v", g)
	}
}

func TestRevokeWithAReplacementThatIsAnotherKeyThanThePublishedOne(t *testing.T) {
	for _, place := range []string{"next", "active", "retired"} {
		s := lives(t)[place]
		for name, tt := range map[string]struct {
			with VerificationKey
			want string
		}{
			"its kid, another key": {must(testKey(8).WithID(subject.ID(), "")), "is not the published key " + string(subject.ID())},
			"the key, another kid": {must(subject.WithID("new-name", "")), "is not the published key " + string(subject.ID())},
		} {
			if _, err := s.Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{Replacement: &tt.with}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, %s: error %v", place, name, err)
			}
		}
	}
}

// buried is the line of a key that is to be gone, as an operator decides or keypostd reports it.
func buried(k VerificationKey, why Departure) Gone {
	return Gone{ID: k.ID(), Fingerprint: k.Fingerprint(), Why: why}
}

// What a publisher serves and what is stored may be different keys of one ID. Either decision ends in a version that
// the publisher takes over.
func TestAcceptOfAnotherKeyUnderTheSameKid(t *testing.T) {
	served := step(t)(New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{testKey(0), must(testKey(1).WithID("k", ""))}}))
	stored := step(t)(New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{testKey(0), must(testKey(2).WithID("k", ""))}}))
	for keep, wantKeys := range map[bool]int{true: 2, false: 1} {
		theirs := must(testKey(1).WithID("k", ""))
		decided := Decided{Gone: []Gone{buried(theirs, Removed)}}
		if keep {
			decided = Decided{Keep: []VerificationKey{theirs}}
		}
		got, err := stored.Accept(because(openDay, "x"), 1, decided)
		if err != nil {
			t.Fatalf("keep %v: %v", keep, err)
		}

		follows(t, fmt.Sprintf("keep %v", keep), got, &served)
		if len(got.Keys()) != wantKeys {
			t.Errorf("keep %v: %d keys", keep, len(got.Keys()))
		}
		if _, gone := got.GoneLine(testKey(2)); !gone {
			t.Errorf("keep %v: the stored key left no trace", keep)
		}
		if _, gone := got.GoneLine(testKey(1)); gone == keep {
			t.Errorf("keep %v: the served key is gone: %v", keep, gone)
		}
	}
}

// A backup from before a key was added does not know that it left. What keypostd knows of it is put back.
func TestAcceptPutsLostLinesBack(t *testing.T) {
	backup := newSet(t, Policy{})
	s := step(t)(backup.Add(change(t0), must(testKey(1).WithID("signer-1", ""))))
	s = step(t)(s.Revoke(because(t0, "lost"), "signer-1", RevokeOptions{}))
	s.body.Generation = 3
	var decided Decided
	for _, g := range s.Gone() {
		decided.Gone = append(decided.Gone, Gone{ID: g.ID, Fingerprint: g.Fingerprint}) // as keypostd reports it
	}
	back := step(t)(backup.Add(change(t0), must(testKey(1).WithID("signer-1", "")))) // or even a key that came back
	for name, stored := range map[string]KeySet{"before it was added": backup, "with the key": back} {
		got := step(t)(stored.Accept(because(openDay, "a backup was restored"), 3, decided))

		follows(t, name, got, &s)
	}
	decided.Keep = []VerificationKey{must(testKey(1).WithID("signer-1", ""))}
	if _, err := back.Accept(because(openDay, "x"), 3, decided); err == nil || !strings.Contains(err.Error(), "never comes back") {
		t.Errorf("a gone key is kept: error %v", err)
	}
}

// A key that was revoked is refused in other key sets too, so that its line must not say that it was removed: neither
// where keypostd knows it, nor where the operator says it, nor where the stored version has it under another kid.
func TestAcceptOfARevokedKey(t *testing.T) {
	key, other := must(testKey(1).WithID("signer-1", "")), must(testKey(2).WithID("signer-1", ""))
	stored := step(t)(newSet(t, Policy{}).Add(change(t0), key))
	renamed := must(testKey(1).WithID("new-name", ""))
	revoked := step(t)(stored.Revoke(because(t0, "lost"), "signer-1", RevokeOptions{}))
	for name, tt := range map[string]struct {
		stored KeySet
		gone   []Gone
		want   Departure
	}{
		"gone":                             {stored, []Gone{buried(key, Removed)}, Removed},
		"revoked, says the operator":       {stored, []Gone{buried(key, Revoked)}, Revoked},
		"revoked, says keypostd":           {stored, []Gone{buried(key, Revoked), buried(key, Removed)}, Revoked},
		"removed, says keypostd":           {stored, []Gone{buried(key, Removed), buried(key, Removed)}, Removed},
		"the operator knows more":          {stored, []Gone{buried(key, Revoked), buried(key, Removed)}, Revoked},
		"not stored":                       {newSet(t, Policy{}), []Gone{buried(key, Revoked)}, Revoked},
		"served under another kid":         {revoked, []Gone{buried(renamed, Removed)}, Revoked},
		"another key that had the same ID": {newSet(t, Policy{}), []Gone{buried(other, Revoked), buried(key, Removed)}, Removed},
	} {
		was := slices.Clone(tt.stored.Gone())
		got := step(t)(tt.stored.Accept(because(openDay, "x"), 0, Decided{Gone: tt.gone}))
		found := false
		for _, g := range got.Gone() {
			if g.Fingerprint == key.Fingerprint() {
				found = true
				if g.Why != tt.want || g.At.IsZero() {
					t.Errorf("%s: %+v, want %s", name, g, tt.want)
				}
			} else if g.ID == "signer-1" && g.Why != Revoked {
				t.Errorf("%s: the other key's line says %s", name, g.Why)
			}
		}
		if !found || !slices.Equal(was, tt.stored.Gone()) {
			t.Errorf("%s: gone %+v, and in the version before %+v", name, got.Gone(), tt.stored.Gone())
		}
	}
}
