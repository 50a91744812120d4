package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
)

// elsewhere are causes of which the one token of these tests is not the victim: it is signed with a key that every answer
// has, or the failure is still to come.
func elsewhere() []string {
	return []string{
		"key-missing", "key-not-published", "replica-stale", "replica-broken", "cache-stale", "etag-stuck", "addresses-differ",
		"origin-silent", "origin-unreachable", "key-still-there", "key-not-withdrawn",
		"key-private",         // whether go-oidc goes on depends on the key's type
		"dns-none",            // go-oidc is led there without DNS
		"token-future",        // Vault looks at iat, go-oidc does not
		"token-times-missing", // Vault makes up for exp, go-oidc does not
	}
}

// TestPredictions: go-oidc, by which Vault, OpenBao and many others read issuers, refuses a token where the catalogue says so,
// in these words, and takes it where it does not. What Vault puts around them is left out.
func TestPredictions(t *testing.T) {
	for _, s := range setups() {
		if s.severity == Warn || slices.Contains(elsewhere(), s.cause) || strings.Contains(s.name, "nginx") {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s.build(t, w)
			w.start(t)
			if w.options.URL != testIssuer || w.options.Connect != "" || slices.Contains([]string{"key-ec-entra", "key-alg-gcp"}, s.cause) {
				return // another issuer is asked, or the world's key is none of the issuer's
			}
			if w.options.Token == "" {
				w.options.Token = w.token(t)
			}
			err := w.relyingParty(t, strings.HasPrefix(s.cause, "token-aud-"))
			predicted, said := false, false
			for _, a := range CauseOf(s.cause).Answers {
				if a.Party == Vault {
					predicted = true
					// Vault's own words stand for go-oidc's of the same moment.
					own := strings.HasPrefix(a.Text, "error checking") || strings.HasPrefix(a.Text, "invalid ") || a.Text == "token is expired"
					said = said || own || err != nil && strings.Contains(err.Error(), a.Text)
				}
			}
			if (err != nil) != predicted || predicted && !said {
				t.Errorf("%s: the catalogue has %v, and go-oidc says: %v", s.cause, CauseOf(s.cause).Answers, err)
			}
		})
	}
}

// relyingParty checks the world's token with go-oidc.
func (w *world) relyingParty(t *testing.T, audience bool) error {
	t.Helper()
	ctx := oidc.ClientContext(t.Context(), newClient(w.options.RootCAs, w.options.complete().patience, w.options.Dial).http)
	p, err := oidc.NewProvider(ctx, testIssuer)
	if err != nil {
		return err
	}
	_, err = p.Verifier(&oidc.Config{ClientID: "sts.amazonaws.com", SkipClientIDCheck: !audience, SupportedSigningAlgs: []string{oidc.RS256, oidc.ES256}}).Verify(ctx, w.options.Token)
	return err
}
