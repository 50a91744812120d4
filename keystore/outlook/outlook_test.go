package outlook_test

import (
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/outlook"
	"github.com/keypost/keypost/test/keys"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOf(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	early, late := keystore.Change{At: t0, By: "ada"}, keystore.Change{At: t0.Add(48 * time.Hour), By: "ada"}
	var both []keystore.VerificationKey
	for n := range 2 {
		k, err := keystore.NewPublic(keys.EC(elliptic.P256(), n+1).Public())
		check(t, err)
		both = append(both, k)
	}
	old, fresh := both[0].ID(), both[1].ID()
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	check(t, err)
	s, err := keystore.New(early, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: both[:1],
		Policy: keystore.Policy{RelyingParties: []string{"aws"}, TokenLifetime: keystore.DurationPtr(time.Hour)},
	})
	check(t, err)
	begun, err := s.StartRotation(early, both[1])
	check(t, err)
	seen := keystore.Observed{Since: t0, Fresh: late.At, Newest: late.At}
	promoted, err := begun.Promote(late, fresh, seen)
	check(t, err)
	retired, err := promoted.Retire(late, old, keystore.Evidence{Statement: "seen"})
	check(t, err)
	added, err := s.Add(early, both[1])
	check(t, err)
	beside, err := added.Promote(late, fresh, seen)
	check(t, err)
	turnedAway, err := begun.RollBack(early)
	check(t, err)
	turnedBack, err := promoted.RollBack(late)
	check(t, err)
	next := func(s keystore.KeySet, id keystore.KeyID, c keystore.Change, o keystore.Observed) string {
		k, _ := s.Key(id)
		step, closed := outlook.Of(c, s, k, o)
		if closed != nil {
			return string(step) + ": " + string(closed.Gate)
		}
		return string(step)
	}
	for _, tt := range []struct{ got, want string }{
		{next(begun, old, late, seen), ""},
		{next(beside, old, late, seen), "retire: signing"},
		{next(beside, fresh, late, seen), ""},
		{next(begun, fresh, early, keystore.Observed{}), "promote: observed"},
		{next(begun, fresh, early, keystore.Observed{Since: t0, Fresh: t0, Newest: t0}), "promote: caches"},
		{next(begun, fresh, late, seen), "promote"},
		{next(promoted, old, late, seen), "retire: signing"},
		{next(promoted, fresh, late, seen), ""},
		{next(turnedAway, fresh, late, seen), "retire: signing"}, // and not to be promoted
		{next(turnedAway, old, late, seen), ""},
		{next(turnedBack, fresh, late, seen), "retire: signing"},
		{next(turnedBack, old, late, seen), ""},
		{next(retired, fresh, late, seen), ""},
		{next(retired, old, late, seen), "remove: tokens"},
		{next(retired, old, keystore.Change{At: late.At.Add(2 * time.Hour)}, seen), "remove"},
		{next(retired, old, early, seen), "remove: clock"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q; want %q", tt.got, tt.want)
		}
	}
}
