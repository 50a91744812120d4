package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// renamed returns the key of k under another key ID.
func renamed(t *testing.T, k keystore.VerificationKey, id keystore.KeyID) keystore.VerificationKey {
	t.Helper()
	k, err := k.WithID(id, "")
	check(t, err)
	return k
}

func TestDisputes(t *testing.T) {
	both, stored, served, gone, other := storetest.Key(t), storetest.Key(t), storetest.Key(t), storetest.Key(t), storetest.Key(t)
	c := storetest.Change(1)
	c.Why = "leaked"
	s, err := storetest.KeySet(t, "a", both, stored, gone).Revoke(c, gone.ID(), keystore.RevokeOptions{})
	check(t, err)
	otherOf := func(id keystore.KeyID) keystore.VerificationKey { return renamed(t, other, id) }
	for name, tt := range map[string]struct {
		served []keystore.VerificationKey
		want   []Dispute
	}{
		"equal":            {[]keystore.VerificationKey{both, stored}, nil},
		"nothing served":   {nil, []Dispute{{Key: both, Side: storedOnly}, {Key: stored, Side: storedOnly}}},
		"one more, less":   {[]keystore.VerificationKey{served, both}, []Dispute{{Key: served, Side: servedOnly}, {Key: stored, Side: storedOnly}}},
		"gone in store":    {[]keystore.VerificationKey{both, stored, gone}, nil},
		"other material":   {[]keystore.VerificationKey{both, otherOf(stored.ID())}, []Dispute{{Key: otherOf(stored.ID()), Side: otherKey}}},
		"other under gone": {[]keystore.VerificationKey{both, stored, otherOf(gone.ID())}, []Dispute{{Key: otherOf(gone.ID()), Side: servedGone, Gone: true}}},
	} {
		got := Disputes(s, tt.served, nil)
		for _, list := range [][]Dispute{got, tt.want} { // the IDs are random, and what is stored is in their order
			slices.SortFunc(list, func(a, b Dispute) int { return strings.Compare(string(a.Key.ID()), string(b.Key.ID())) })
		}
		if !slices.EqualFunc(got, tt.want, func(a, b Dispute) bool {
			return a.Side == b.Side && a.Gone == b.Gone && a.Key.Equal(b.Key) && a.Key.ID() == b.Key.ID()
		}) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// A restored backup has a key that was revoked since: no verdict brings it back.
func TestRevokedIsNotKept(t *testing.T) {
	k, revoked := storetest.Key(t), storetest.Key(t)
	s := storetest.KeySet(t, "a", k, revoked)
	for name, line := range map[string]keystore.Gone{
		"by key ID":   {ID: revoked.ID()},
		"by material": {ID: "another-kid", Fingerprint: revoked.Fingerprint()},
	} {
		disputes := Disputes(s, []keystore.VerificationKey{k}, []keystore.Gone{line})
		if len(disputes) != 1 || disputes[0].Key.ID() != revoked.ID() || !disputes[0].Gone || disputes[0].Side != storedGone {
			t.Fatalf("%s: disputes %+v", name, disputes)
		}
		_, err := Decide(disputes, Verdict{Keep: []string{string(revoked.ID())}})
		if KindOf(err) != Barred || !strings.Contains(err.Error(), string(revoked.ID())) {
			t.Errorf("%s: keep: %v", name, err)
		}
		if _, err := Decide(disputes, Verdict{Gone: []string{string(revoked.ID())}}); err != nil {
			t.Errorf("%s: gone: %v", name, err)
		}
	}
}

func TestDecide(t *testing.T) {
	k1, k2 := storetest.Key(t), storetest.Key(t)
	id1, id2 := string(k1.ID()), string(k2.ID())
	disputes := []Dispute{{Key: k1, Side: servedOnly}, {Key: k2, Side: storedOnly}}
	got, err := Decide(disputes, Verdict{Keep: []string{id1[:MinPrefix]}, Gone: []string{id2}})
	if err != nil || len(got.Keep) != 1 || got.Keep[0].ID() != k1.ID() || len(got.Gone) != 1 || got.Gone[0].ID != k2.ID() {
		t.Errorf("Decide = %v, %v", got, err)
	}
	if got, err := Decide(nil, Verdict{}); err != nil || len(got.Keep)+len(got.Gone) > 0 {
		t.Errorf("Decide nothing = %v, %v", got, err)
	}
	_, err = Decide(disputes, Verdict{Keep: []string{id1}})
	if e, is := errors.AsType[*UndecidedError](err); !is || len(e.Open) != 1 || e.Open[0].Key.ID() != k2.ID() {
		t.Errorf("one undecided: %v", err)
	}
	_, err = Decide(disputes, Verdict{Keep: []string{id1, id2}, Gone: []string{id1}})
	if KindOf(err) != Contradiction || !strings.Contains(err.Error(), id1) {
		t.Errorf("kept and gone: %v", err)
	}
	_, err = Decide(disputes, Verdict{Keep: []string{id1, id2}, Revoked: []string{id1}})
	if KindOf(err) != Contradiction || !strings.Contains(err.Error(), id1) {
		t.Errorf("kept and revoked: %v", err)
	}
	got, err = Decide(disputes, Verdict{Gone: []string{id1, id2}, Revoked: []string{id1}})
	if err != nil || len(got.Keep) > 0 || len(got.Gone) != 2 || got.Gone[0].Why != keystore.Revoked || got.Gone[1].Why != keystore.Removed {
		t.Errorf("gone, and one revoked: %+v, %v", got, err)
	}
	for of, v := range map[string]Verdict{
		"keep":    {Keep: []string{"zzzzzzzz"}, Gone: []string{id1, id2}},
		"gone":    {Keep: []string{id1, id2}, Gone: []string{"zzzzzzzz"}},
		"revoked": {Keep: []string{id1, id2}, Revoked: []string{"zzzzzzzz"}},
	} {
		_, err := Decide(disputes, v)
		if KindOf(err) != NoKey || !strings.HasPrefix(err.Error(), "--"+of+": ") {
			t.Errorf("a key that is not in dispute, %s: %v", of, err)
		}
	}
}

// An edit by hand or a second writer may leave the generation as it was.
func TestAcceptAfterAChangeOfTheSameGeneration(t *testing.T) {
	compared, edited := storetest.KeySet(t, "a"), storetest.KeySet(t, "a")
	if compared.Generation() != edited.Generation() {
		t.Fatal("the generations differ")
	}
	if _, err := Accept(t.Context(), storeWith(t, false, edited), storetest.Change(2), Acceptance{Stored: compared}); err == nil {
		t.Error("decisions about one version were applied to another one of the same generation")
	}
	if _, err := Accept(t.Context(), storeWith(t, false, compared), storetest.Change(2), Acceptance{Stored: compared}); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

func TestLostLines(t *testing.T) {
	kept, lost := storetest.Key(t), storetest.Key(t)
	line := func(k keystore.VerificationKey) keystore.Gone {
		return keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint()}
	}
	s, err := storetest.KeySet(t, "a", storetest.Key(t), kept).Revoke(storetest.Change(1), kept.ID(), keystore.RevokeOptions{})
	check(t, err)
	got := LostLines(s, []keystore.Gone{line(kept), line(lost)})
	if len(got) != 1 || got[0] != line(lost) {
		t.Errorf("LostLines = %+v, want only %s", got, lost.ID())
	}
}
