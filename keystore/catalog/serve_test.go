package catalog

import (
	"errors"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestRejected(t *testing.T) {
	named := func(n keystore.Name, url string) keystore.KeySet {
		u, err := keystore.ParseIssuerURL(url, false)
		check(t, err)
		s, err := keystore.New(storetest.Change(0), keystore.Spec{
			Name: n, Issuers: []keystore.IssuerURL{u}, Policy: storetest.KeySet(t, "x").Policy(), Keys: []keystore.VerificationKey{storetest.Key(t)},
		})
		check(t, err)
		return s
	}
	broken, err := keystore.ParseIssuerURL("https://oidc.example.com/broken", false)
	check(t, err)
	c := Contents{
		Sets: []keystore.KeySet{
			named("a", "https://oidc.example.com/a"), named("b", "https://oidc.example.com/b"), named("thief", "https://oidc.example.com/a"),
			named("late", broken.String()),
		},
		Unread: map[keystore.Name]error{
			"broken": &keystore.BrokenError{Reason: lastgood.ReasonBroken, Issuers: []keystore.IssuerURL{broken}, Err: errors.New("x")},
			"hidden": errors.New("permission denied"), // which URLs it has is not known
		},
	}
	got := c.Rejected()
	for _, n := range []keystore.Name{"a", "thief", "late"} {
		if !got[n].Is(lastgood.ReasonURLConflict) {
			t.Errorf("%s: %v, want %s", n, got[n], lastgood.ReasonURLConflict)
		}
	}
	if len(got) != 3 {
		t.Errorf("Rejected = %v, want three", got)
	}
}
