package verify

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// TestPredictionsOfVault: what the first finding of a set-up says that Vault answers is what go-oidc says of that issuer, asked as
// Vault asks it. Where Vault's own code answers (finding's TestSources has where that is written), go-oidc lets the token in: it
// is looked at no sooner.
func TestPredictionsOfVault(t *testing.T) {
	compared := map[bool]int{}
	var mu sync.Mutex
	t.Run("each", func(t *testing.T) {
		for _, s := range setups() {
			predicted := answersOf(finding.CauseOf(s.cause).Answers, finding.Vault)
			if s.severity != "" || len(predicted) == 0 || unpredictedOfVault()[s.cause] != "" {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.anyHost = true // go-oidc follows redirects, and asks for the host as it is written
				s.build(t, w)
				token := cmp.Or(w.options.Token, w.token(t))
				w.start(t)
				answer := w.askVault(t, token)
				own := strings.HasSuffix(predicted[0], " claim") || predicted[0] == "token is expired"
				if own && answer != "" || !own && !slices.ContainsFunc(predicted, func(text string) bool { return strings.Contains(answer, text) }) {
					t.Errorf("%s predicts %q, and go-oidc answers %q", s.cause, predicted, answer)
				}
				mu.Lock()
				defer mu.Unlock()
				compared[own]++
			})
		}
	})
	if (compared[false] < 30 || compared[true] < 8) && !t.Failed() {
		t.Errorf("only %d set-ups were compared, and %d of claims", compared[false], compared[true])
	}
}

// unpredictedOfVault are causes whose answer of Vault go-oidc does not show, by the reason.
func unpredictedOfVault() map[string]string {
	const (
		sometimes = "it meets it now and then, or with tokens of that key"
		sound     = "it asks one address, which may be a sound one"
	)
	return map[string]string{
		"cache-stale": sometimes, "key-missing": sometimes, "addresses-differ": sound, "origin-unreachable": sound, "dns-none": "it looks no name up here",
		"connection-dropped": "it waits, and nothing comes", "token-malformed": "it checks the signature, and not every claim", "url-form": "the URL is one that it takes", "key-form": "it leaves out the keys that it cannot use", "token-kid-unknown": "it tries every key for a token without kid", "upload-behind": "it fetches, and no upload counts",
	}
}

func answersOf(answers []finding.Answer, party string) []string {
	var all []string
	for _, a := range answers {
		if a.Party == party {
			all = append(all, a.Text)
		}
	}
	return all
}

// asGoOIDC is a context in which go-oidc reaches the world.
func (w *world) asGoOIDC(t *testing.T) context.Context {
	t.Helper()
	transport := &http.Transport{DialContext: w.options.Dial, TLSClientConfig: &tls.Config{RootCAs: w.options.RootCAs}}
	t.Cleanup(transport.CloseIdleConnections)
	return oidc.ClientContext(t.Context(), &http.Client{Transport: transport, Timeout: impatient})
}

// askVault returns what a Vault that has never seen the issuer answers, up to the token's signature; empty if it takes that. The
// words around go-oidc's are Vault's own.
//
// Sources: hashicorp/vault-plugin-auth-jwt, path_config.go (pathConfigWrite, createProvider); hashicorp/cap, jwt/keyset.go and jwt/jwt.go
// (validateAll).
func (w *world) askVault(t *testing.T, token string) string {
	t.Helper()
	ctx := w.asGoOIDC(t)
	provider, err := oidc.NewProvider(ctx, w.options.URL)
	if err != nil {
		return "error checking oidc discovery URL: error creating provider with given values: " + err.Error()
	}
	var document struct {
		JWKS string `json:"jwks_uri"`
	}
	check(t, provider.Claims(&document))
	if _, err = oidc.NewRemoteKeySet(ctx, document.JWKS).VerifySignature(ctx, token); err != nil {
		return "error verifying token signature: " + err.Error()
	}
	return ""
}
