package lastgood

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/issuerurl"
)

func TestIndex(t *testing.T) {
	x := &Index{}
	owns := func(url, want string) {
		t.Helper()
		if n, owned := x.Owner(issuerurl.RouteOf(url)); string(n) != want || owned != (want != "") {
			t.Errorf("%s belongs to %q, want %q", url, n, want)
		}
	}
	owns(shared, "")
	x.Put("a", claim("a", 1, 1).summary(t))
	x.Put("b", claim("b", 1, 2).summary(t)) // somebody wrote it by hand
	owns(shared, "a")
	x.Put("a", claim("a", 2, 1).summary(t))
	owns(shared, "a")
	if x.Good("a").Generation() != 2 || x.Good("c") != nil || len(x.good) != 2 {
		t.Error("a is not in its second generation")
	}
	x.Put("a", withdrawn(claim("a", 3, 1)).summary(t))
	owns(shared, "b")
	x.Put("b", doc{name: "b", generation: 2, keys: []int{2}}.summary(t))
	owns(shared, "")
	owns("https://oidc.example.com/b", "b")
	x.Put("b", nil)
	owns("https://oidc.example.com/b", "")
	if x.Good("b") != nil || len(x.good) != 1 || !slices.Equal(x.Names(), []keystore.Name{"a"}) || len(x.live) != 0 {
		t.Errorf("after forgetting: %q, %d routes", x.Names(), len(x.live))
	}
	x.Put("never", nil)
	if len(x.good) != 1 {
		t.Error("what never was is there")
	}
}
