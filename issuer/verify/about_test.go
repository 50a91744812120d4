package verify

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// A repair that revokes a key is about the stored key whose private half is published, and about none if that is a stranger's:
// a server chooses the kid, so that it could have a good key revoked.
func TestAboutTheKeyWhosePrivateHalfIsPublished(t *testing.T) {
	for name, tt := range map[string]struct {
		own  bool
		kid  func(stored string) string
		want bool
	}{
		"our key":                   {true, func(stored string) string { return stored }, true},
		"our key under another kid": {true, func(string) string { return "other" }, true},
		"a stranger's under a kid with ours in it": {false, func(stored string) string { return "not-" + stored + "-at-all" }, false},
		"a stranger's under our kid":               {false, func(stored string) string { return stored }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			key := w.jwks[0]
			if !tt.own {
				key = publicJWK(t, newECKey(t))
				w.jwks = append(w.jwks, key)
			}
			key["kid"], key["d"] = tt.kid(w.kid), "AAAA"
			found := w.visit(t)
			i := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Code == "key-private" })
			if i < 0 {
				t.Fatalf("no key-private in%s", lines(found))
			}
			if got := found[i].Kid; (got == w.kid) != tt.want || !tt.want && got != "" {
				t.Errorf("it is about %q, and the stored key is %q", got, w.kid)
			}
		})
	}
}
