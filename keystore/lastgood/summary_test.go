package lastgood

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/keystore"
)

func TestSummary(t *testing.T) {
	d := doc{name: "a", generation: 7, issuers: []string{"https://oidc.example.com/a", "https://b.example.com"}, keys: []int{1}, lines: []any{line("legacy", ""), line("named", string(testKey(2).Fingerprint())), line(string(testKey(3).ID()), ""), revokedLine("lost", ""), revokedLine("stolen", string(testKey(4).Fingerprint()))}}
	set, err := parseTree("a", d.tree())
	if err != nil {
		t.Fatal(err)
	}
	s := SummaryOf(set)
	want := []keystore.Gone{{ID: "legacy"}, {ID: "named", Fingerprint: testKey(2).Fingerprint()}, {ID: testKey(3).ID(), Fingerprint: testKey(3).Fingerprint()}, {ID: "lost"}, {ID: "stolen", Fingerprint: testKey(4).Fingerprint()}}
	for i := range want {
		want[i].Why = keystore.Removed
		if i > 2 {
			want[i].Why = keystore.Revoked
		}
	}
	if got := slices.Collect(s.gone.ids()); !slices.Equal(got, []string{"legacy", "named", string(testKey(3).ID()), "lost", "stolen"}) {
		t.Errorf("kids %q", got)
	}
	if r := s.gone.keyring(); r.byKid["stolen"] != testKey(4).Fingerprint() || r.byKid["lost"] != "" || len(r.material) != 3 {
		t.Errorf("keyring %+v", r)
	}
	if got := s.Gone(); !slices.Equal(got, want) {
		t.Errorf("gone %+v, want %+v", got, want)
	}
	if got := slices.Collect(s.Issuers()); !slices.Equal(got, d.issuers) || s.Generation() != 7 || s.Digest() != set.Digest() || s.Withdrawn() {
		t.Errorf("issuers %q, generation %d, withdrawn %v", got, s.Generation(), s.Withdrawn())
	}
	if got := slices.Collect(s.Routes()); !slices.Equal(got, []Route{{"oidc.example.com", "/a"}, {"b.example.com", ""}}) {
		t.Errorf("routes %q", got)
	}
	if !withdrawn(d).summary(t).Withdrawn() {
		t.Error("a tombstone is none")
	}
}

// Routes are what a parsed URL is looked up by, and no other text is taken for one.
func TestRoutes(t *testing.T) {
	for _, raw := range []string{"https://oidc.example.com", "https://oidc.example.com/a/b", "https://localhost:8443", "https://localhost:8443/a", "https://127.0.0.1/a"} {
		u, err := keystore.ParseIssuerURL(raw, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := RouteOf(raw); got != (Route{u.Host(), u.Path()}) {
			t.Errorf("%s: %q", raw, got)
		}
	}
	for _, raw := range []string{"", "/", "https://", "http://oidc.example.com/a", "https:///a", "::"} {
		if got := RouteOf(raw); got.Host == "oidc.example.com" {
			t.Errorf("%q: %q", raw, got)
		}
	}
}

func TestIndex(t *testing.T) {
	x := &Index{}
	owns := func(url, want string) {
		t.Helper()
		if n, owned := x.Owner(RouteOf(url)); string(n) != want || owned != (want != "") {
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
