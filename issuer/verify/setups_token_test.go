package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// fresh tokens: the repair of most that is wrong with a token is a new one.
func anew(t *testing.T, w *world) {
	w.kid = string(public(t, w.signer).ID())
	w.claims = soundClaims()
	w.options.Token = w.token(t)
}

func claim(name string, value any) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		if w.claims[name] = value; value == nil {
			delete(w.claims, name)
		}
		w.options.Token = w.token(t)
	}
}

func literal(token string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.options.Token = token }
}

func tokenSetups() []setup {
	return []setup{
		{"a token cut in half", "token-malformed", "", func(t *testing.T, w *world) { w.options.Token = w.token(t)[:100] }, anew},
		{"a token without a signature", "token-malformed", "", literal("eyJhbGciOiJub25lIn0.e30."), anew},
		{"a token signed with a shared secret", "token-alg", "", func(t *testing.T, w *world) { w.options.Token = hmacToken(t, w) }, anew},
		{"a token whose iss ends in a slash", "token-issuer-other", "", claim("iss", testIssuer+"/"), anew},
		{"a token of another issuer", "token-issuer-other", "", claim("iss", "https://oidc.example.com/prod-b"), anew},
		{"a token that names no key", "token-kid-unknown", "", func(t *testing.T, w *world) { w.kid = ""; w.options.Token = w.token(t) }, anew},
		{"a token of a removed key", "token-kid-gone", "", func(t *testing.T, w *world) {
			k := newECKey(t)
			w.storeKey(t, stale+time.Hour, k)
			w.revoke(t, stale, public(t, k).ID())
			mine := w.signer
			w.signer, w.kid = k, string(public(t, k).ID())
			w.options.Token = w.token(t)
			w.signer = mine
		}, anew},
		{"the cluster signs with a key that is stored and not public yet", "token-kid-next", "", func(t *testing.T, w *world) {
			withPolicy(func(p *keystore.Policy) { p.EdgeHold = keystore.DurationPtr(time.Hour) })(t, w)
			w.header.Set("Age", "100")
			k, mine := newECKey(t), w.signer
			w.storeKey(t, fresh, k)
			w.signer, w.kid = k, string(public(t, k).ID())
			w.options.Token = w.token(t)
			w.signer = mine
		}, func(t *testing.T, w *world) { w.heal(t); anew(t, w) }},
		{"the cluster signs with a key that may not sign yet", "token-kid-next", finding.Warn, func(t *testing.T, w *world) {
			k, mine := newECKey(t), w.signer
			w.storeKey(t, fresh, k)
			w.jwks = append(w.jwks, publicJWK(t, k))
			w.signer, w.kid = k, string(public(t, k).ID())
			w.options.Token = w.token(t)
			w.signer = mine
		}, anew},
		{"the cluster signs with an unpublished key", "token-kid-unknown", "", func(t *testing.T, w *world) {
			w.signer = newECKey(t)
			w.kid = string(public(t, w.signer).ID())
			w.options.Token = w.token(t)
		}, func(t *testing.T, w *world) { w.storeKey(t, settling, w.signer); w.heal(t) }}, // key add
		{"a token with another key's kid", "token-signature-wrong", "", func(t *testing.T, w *world) {
			mine := w.signer
			w.signer = newECKey(t)
			w.options.Token = w.token(t)
			w.signer = mine
		}, anew},
	}
}

func tokenClaimSetups() []setup {
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	long := func(n int) string {
		const prefix = "system:serviceaccount:default:"
		return prefix + strings.Repeat("a", n-len(prefix))
	}
	declared := func(party string, then func(*testing.T, *world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { parties(party)(t, w); then(t, w) }
	}
	return []setup{
		{"an expired token", "token-expired", "", claim("exp", in(-10*time.Minute)), anew},
		{"a token that is not valid yet", "token-not-yet", "", claim("nbf", in(time.Hour)), anew},
		{"a token from the future", "token-not-yet", "", claim("iat", in(time.Hour)), anew},
		{"a token of a year", "token-lifetime", finding.Warn, claim("exp", in(365*24*time.Hour)), anew},
		{"a token for the cluster itself", "token-aud-cluster", "", claim("aud", []string{"https://kubernetes.default.svc"}), anew},
		{"a token for the issuer", "token-aud-cluster", "", claim("aud", []string{testIssuer}), anew},
		{"a token for GCP, and AWS is declared", "token-aud-unusual", finding.Warn, claim("aud", "//iam.googleapis.com/projects/1"), anew},
		{"a token without subject", "token-malformed", "", claim("sub", nil), anew},
		{"a subject of 128 bytes, and GCP is declared", "token-sub-gcp", "", declared("gcp", func(t *testing.T, w *world) {
			w.claims["aud"] = "openshift"
			claim("sub", long(128))(t, w)
		}), claim("sub", long(127))},
	}
}
