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
	if (compared[false] < 40 || compared[true] < 8) && !t.Failed() {
		t.Errorf("only %d set-ups were compared, and %d of claims", compared[false], compared[true])
	}
}

// unpredictedOfVault are causes whose answer of Vault go-oidc does not show, by the reason.
func unpredictedOfVault() map[string]string {
	const (
		sometimes = "it meets it now and then, or with tokens of that key alone"
		sound     = "it asks one address alone, which may be a sound one"
	)
	return map[string]string{
		"replica-stale": sometimes, "replica-broken": sometimes, "etag-stuck": sometimes, "cache-stale": sometimes,
		"key-missing": sometimes, "key-not-published": sometimes, "addresses-differ": sound, "origin-silent": sound, "origin-unreachable": sound,
		"dns-none": "it looks no name up here",
	}
}

// TestUnnamedAlgorithm: Vault and kube-apiserver have lists of their own, and other programs go by the document.
func TestUnnamedAlgorithm(t *testing.T) {
	w := newWorld(t)
	delete(w.discovery, "id_token_signing_alg_values_supported")
	w.start(t)
	token := w.token(t)
	if answer := w.askVault(t, token); answer != "" || len(answersOf(finding.CauseOf("algorithm-unnamed").Answers, finding.Vault)) > 0 {
		t.Errorf("Vault answers %q", answer)
	}
	ctx := w.asGoOIDC(t)
	provider, err := oidc.NewProvider(ctx, w.options.URL)
	check(t, err)
	if _, err = provider.Verifier(&oidc.Config{SkipClientIDCheck: true}).Verify(ctx, token); err == nil || !strings.Contains(err.Error(), "oidc: malformed jwt") {
		t.Errorf("go-oidc answers %v", err)
	}
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
