package verify

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/keys"
)

func TestNothingWrong(t *testing.T) {
	w := newWorld(t)
	w.options.Token = w.token(t)
	findings := w.visit(t)
	var checks []string
	for _, f := range findings {
		if f.Severity != finding.OK {
			t.Errorf("%+v", f)
		}
		checks = append(checks, f.Code)
	}
	want := []string{
		"url", "addresses", "clock", "tls-chain", "tls-versions", "tls-expiry", "discovery", "issuer", "jwks-uri", "discovery-members",
		"jwks-keys", "jwks-alias", "headers", "headers", "stored-keys", "token-issuer", "token-kid", "token-signature", "token-time", "token-claims",
	}
	if !slices.Equal(checks, want) {
		t.Errorf("checks %q, want %q", checks, want)
	}
}

func answer(status int, header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if name, value, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// defect is a world with one thing wrong, and the one finding that it makes.
type defect struct {
	name     string
	make     func(t *testing.T, w *world)
	check    string
	severity finding.Severity
	message  string // a part of it
}

func runDefects(t *testing.T, defects []defect) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d.make(t, w)
			findings := w.visit(t)
			found := false
			for _, f := range findings {
				if f.Check == d.check && f.Severity == d.severity && strings.Contains(f.Message(), d.message) {
					found = true
				} else if f.Severity == finding.Fail && d.severity != finding.Fail {
					t.Errorf("also fails: %+v", f)
				}
				if f.Severity != finding.OK && f.Repair == "" {
					t.Errorf("no repair: %+v", f)
				}
				if strings.ContainsAny(fmt.Sprint(f), "\n\r\x1b") {
					t.Errorf("control characters: %+v", f)
				}
				if token := w.options.Token; len(token) > 20 && strings.Contains(fmt.Sprint(f), token[len(token)-20:]) {
					t.Errorf("prints the token: %+v", f)
				}
			}
			if !found {
				t.Errorf("no %s finding of %s with %q in %+v", d.severity, d.check, d.message, findings)
			}
			if finding.Failed(findings) != (d.severity == finding.Fail) {
				t.Errorf("Failed is %v", finding.Failed(findings))
			}
		})
	}
}

// TestDefects: what is a little different from the set-ups, and must not pass for good.
func TestDefects(t *testing.T) {
	replace := func(path string, h http.HandlerFunc) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.replace["/prod-a"+path] = h }
	}
	header := func(name, value string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.header.Set(name, value) }
	}
	with := func(name string, value any) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.jwks[0][name] = value }
	}
	runDefects(t, []defect{
		{"root sent", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, w.pki.root) }, "tls-chain", finding.OK, "trusted by --ca-file only, and in order (3 sent"},
		{"short-lived, not due", func(t *testing.T, w *world) { w.send(w.pki.shortLived(t, 3*24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.OK, "valid until"},
		{"short-lived, overdue", func(t *testing.T, w *world) { w.send(w.pki.shortLived(t, 24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.Warn, "expires at"},
		{"a huge discovery document", replace(fetch.DiscoveryPath, answer(200, "", strings.Repeat(" ", fetch.MaxBody+1))), "discovery", finding.Fail, "larger than"},
		{"max-age that is not a number", header("Cache-Control", "max-age=5m"), "headers", finding.Fail, "(max-age=0)"},
		{"private", header("Cache-Control", "private, max-age=300"), "headers", finding.Fail, "(private)"},
		{"kid that is not a string", with("kid", 7), "jwks-keys", finding.Fail, "keys.json has no kid"},
		{"encryption key", with("use", "enc"), "jwks-keys", finding.Fail, "use"},
		{"kid with control characters", with("kid", "\x1b[31m"), "jwks-keys", finding.Fail, "?[31m"},
		{"the alias has the key under another kid", func(_ *testing.T, w *world) {
			other := maps.Clone(w.jwks[0])
			other["kid"] = "another"
			w.alias, w.options.Stored = []member{other}, nil
		}, "jwks-alias", finding.Fail, "other keys"},
		{"a token with other claims", func(t *testing.T, w *world) {
			parts := strings.Split(w.token(t), ".")
			w.claims["sub"] = "system:serviceaccount:kube-system:admin"
			parts[1] = strings.Split(w.token(t), ".")[1]
			w.options.Token = strings.Join(parts, ".")
		}, "token-signature", finding.Fail, "does not verify"},
		{"a token with an algorithm that is not the key's", func(t *testing.T, w *world) { w.options.Token = rs384Token(t, w) }, "token-signature", finding.Fail, "(RS256)"},
	})
}

// rs384Token is signed by a published key with an algorithm that is not the key's.
func rs384Token(t *testing.T, w *world) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	raw, err := json.Marshal(jose.JSONWebKey{Key: key.Public(), KeyID: "r", Algorithm: "RS256", Use: "sig"})
	check(t, err)
	var published member
	check(t, json.Unmarshal(raw, &published))
	w.jwks = append(w.jwks, published)
	w.discovery["id_token_signing_alg_values_supported"] = []string{"ES256", "RS256"}
	return keys.JWS(key, jose.RS384, "r", w.claims)
}

func hmacToken(t *testing.T, w *world) string {
	t.Helper()
	return keys.JWS(make([]byte, 32), jose.HS256, w.kid, w.claims)
}
