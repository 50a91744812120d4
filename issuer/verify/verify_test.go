package verify

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

func TestNothingWrong(t *testing.T) {
	w := newWorld(t)
	w.options.Token = w.token(t)
	findings := w.visit(t)
	var checks []string
	for _, f := range findings {
		if f.Severity != finding.OK && f.Check != "speed" { // that one is about this machine's load
			t.Errorf("%+v", f)
		}
		checks = append(checks, f.Code)
	}
	want := []string{
		"url", "addresses", "clock", "tls-chain", "tls-versions", "tls-expiry", "discovery", "issuer", "jwks-uri", "discovery-members", "discovery-headers",
		"jwks-keys", "jwks-headers", "jwks-alias", "stored-keys", "head", "speed", "token-issuer", "token-kid", "token-signature", "token-time", "token-claims",
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

func TestURLAndReach(t *testing.T) {
	url := func(u string) func(*testing.T, *world) { return func(_ *testing.T, w *world) { w.options.URL = u } }
	runDefects(t, []defect{
		{"plain HTTP", url("http://oidc.example.com/prod-a"), "url", finding.Fail, "must begin with https://"},
		{"trailing slash", url(testIssuer + "/"), "url", finding.Fail, "ends in a slash"},
		{"port", url("https://localhost:8443/prod-a"), "url", finding.Fail, "has a port"},
		{"refused", func(_ *testing.T, w *world) {
			w.options.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:1")
			}
		}, "reach", finding.Fail, "192.0.2.1:443 cannot be reached for oidc.example.com: "},
		{"no such name", func(_ *testing.T, w *world) {
			w.options.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "oidc.example.com", IsNotFound: true}
			}
		}, "reach", finding.Fail, "no such host"},
		{"development URL", func(_ *testing.T, w *world) {
			w.options.URL, w.options.Dev = "https://localhost:8443/prod-a", true
			w.options.Stored = nil
			w.discovery["issuer"], w.discovery["jwks_uri"] = w.options.URL, w.options.URL+"/keys.json"
		}, "url", finding.OK, "is a development URL"},
	})
}

func TestTLS(t *testing.T) {
	runDefects(t, []defect{
		{"unknown CA", func(t *testing.T, w *world) { w.options.RootCAs = newPKI(t).root.Pool() }, "tls-chain", finding.Fail, "is not trusted"},
		{"wrong name", func(t *testing.T, w *world) {
			w.send(w.pki.issueLeaf(t, time.Hour*2000, "other.example.com"), w.pki.intermediate)
		}, "tls-chain", finding.Fail, "other.example.com"},
		{"expired", func(t *testing.T, w *world) { w.send(w.pki.issueLeaf(t, -time.Hour), w.pki.intermediate) }, "tls-chain", finding.Fail, "expired"},
		{"intermediate missing", func(_ *testing.T, w *world) { w.send(w.pki.leaf) }, "tls-chain", finding.Fail, "is not trusted"},
		{"sent twice", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, w.pki.intermediate) }, "tls-chain", finding.Fail, "twice"},
		{"unrelated one sent", func(t *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, newPKI(t).intermediate) }, "tls-chain", finding.Fail, "out of order"},
		{"out of order", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.root, w.pki.intermediate) }, "tls-chain", finding.Fail, "out of order"},
		{"another of the same name sent", func(t *testing.T, w *world) {
			w.options.RootCAs.AddCert(w.pki.intermediate.Cert)
			w.send(w.pki.leaf, newPKI(t).intermediate)
		}, "tls-chain", finding.Fail, "out of order"},
		{"root sent", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, w.pki.root) }, "tls-chain", finding.OK, "trusted by --ca-file only, and in order (3 sent"},
		{"TLS 1.3 only", func(_ *testing.T, w *world) { w.tls.MinVersion = tls.VersionTLS13 }, "tls-versions", finding.Fail, "TLS 1.2 is not accepted"},
		{"TLS 1.2 only", func(_ *testing.T, w *world) { w.tls.MaxVersion = tls.VersionTLS12 }, "tls-versions", finding.Warn, "TLS 1.3 is not accepted"},
		{"expires soon", func(t *testing.T, w *world) { w.send(w.pki.issueLeaf(t, 20*24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.Warn, "expires at"},
		{"short-lived, not due", func(t *testing.T, w *world) { w.send(w.pki.shortLived(t, 3*24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.OK, "valid until"},
		{"short-lived, overdue", func(t *testing.T, w *world) { w.send(w.pki.shortLived(t, 24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.Warn, "expires at"},
		{"expires later", func(t *testing.T, w *world) { w.send(w.pki.issueLeaf(t, 22*24*time.Hour), w.pki.intermediate) }, "tls-expiry", finding.OK, "valid until"},
	})
}

func TestDiscovery(t *testing.T) {
	path := "/prod-a" + discoveryPath
	set := func(name string, value any) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.discovery[name] = value }
	}
	replace := func(h http.HandlerFunc) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.replace[path] = h }
	}
	runDefects(t, []defect{
		{"missing", replace(answer(404, "", "")), "discovery", finding.Fail, "answers 404"},
		{"redirect", replace(answer(301, "Location: https://elsewhere.example.com/x", "")), "discovery", finding.Fail, "redirects (301) to https://elsewhere.example.com/x"},
		{"unavailable", replace(answer(503, "", "")), "discovery", finding.Fail, "answers 503"},
		{"HTML", replace(answer(200, "Content-Type: text/html", "<html>")), "discovery", finding.Fail, "not valid JSON"},
		{"huge", replace(answer(200, "", strings.Repeat(" ", maxBody+1))), "discovery", finding.Fail, "larger than"},
		{"cut short", replace(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("{"))
		}), "discovery", finding.Fail, "unexpected EOF"},
		{"other issuer", set("issuer", testIssuer+"/"), "issuer", finding.Fail, `names the issuer "` + testIssuer + `/"`},
		{"issuer in other case", set("issuer", "https://OIDC.example.com/prod-a"), "issuer", finding.Fail, "OIDC"},
		{"no jwks_uri", set("jwks_uri", ""), "jwks-uri", finding.Fail, "no https URL"},
		{"jwks_uri over HTTP", set("jwks_uri", "http://oidc.example.com/prod-a/keys.json"), "jwks-uri", finding.Fail, "no https URL"},
		{"jwks_uri elsewhere", func(_ *testing.T, w *world) {
			w.discovery["jwks_uri"] = "https://oidc.example.com:444/prod-a/keys.json"
		}, "jwks-uri", finding.Fail, "another host"},
		{"jwks_uri beside", func(_ *testing.T, w *world) {
			w.discovery["jwks_uri"] = "https://oidc.example.com/keys.json"
			w.replace["/keys.json"] = func(rw http.ResponseWriter, r *http.Request) { r.URL.Path = "/prod-a/keys.json"; w.serve(rw, r) }
		}, "jwks-uri", finding.Warn, "not below the issuer"},
		{"no response types", set("response_types_supported", nil), "discovery-members", finding.Fail, `response_types_supported lacks "id_token"`},
		{"no subject types", set("subject_types_supported", []string{}), "discovery-members", finding.Fail, `subject_types_supported lacks "public"`},
		{"no algorithms", set("id_token_signing_alg_values_supported", nil), "discovery-members", finding.Fail, "none of RS256"},
		{"wrong algorithms", set("id_token_signing_alg_values_supported", []string{"EdDSA"}), "discovery-members", finding.Fail, "none of RS256"},
		{"algorithm of the key not named", set("id_token_signing_alg_values_supported", []string{"RS256"}), "discovery-members", finding.Warn, "lacks ES256"},
		{"no claims", set("claims_supported", nil), "discovery-members", finding.Warn, `claims_supported lacks "aud"`},
	})
}

func TestHeaders(t *testing.T) {
	header := func(name, value string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.header.Set(name, value) }
	}
	runDefects(t, []defect{
		{"no-store", header("Cache-Control", "no-store"), "jwks-headers", finding.Fail, "(no-store)"},
		{"no-cache", header("Cache-Control", "public, No-Cache"), "jwks-headers", finding.Fail, "(no-cache)"},
		{"private", header("Cache-Control", "private, max-age=300"), "jwks-headers", finding.Fail, "(private)"},
		{"max-age=0", header("Cache-Control", "public, max-age=0, must-revalidate"), "jwks-headers", finding.Fail, "(max-age=0)"},
		{"max-age that is no number", header("Cache-Control", "max-age=5m"), "jwks-headers", finding.Fail, "(max-age=0)"},
		{"Pragma", header("Pragma", "no-cache"), "jwks-headers", finding.Fail, "Pragma"},
		{"no Cache-Control", header("Cache-Control", "public"), "jwks-headers", finding.Warn, "has no max-age"},
		{"short", header("Cache-Control", "max-age=30"), "jwks-headers", finding.Warn, "for 30s only"},
		{"long", header("Cache-Control", `max-age="86400"`), "jwks-headers", finding.Warn, "for 24h"},
		{"discovery document that may not be cached", func(_ *testing.T, w *world) {
			w.replace["/prod-a"+discoveryPath] = func(rw http.ResponseWriter, r *http.Request) {
				delete(w.replace, r.URL.Path)
				w.serve(rw, r)
			}
			w.header.Set("Cache-Control", "max-age=300")
			w.header.Del("ETag")
		}, "discovery-headers", finding.Warn, "has no ETag"},
		{"wrong type", header("Content-Type", "text/html; charset=utf-8"), "jwks-headers", finding.Warn, `Content-Type "text/html"`},
		{"kube-apiserver's type", header("Content-Type", "application/jwk-set+json"), "jwks-headers", finding.OK, "may be cached for 5m"},
		{"shared cache", header("Age", "12"), "shared-cache", finding.Warn, "Age: 12"},
		{"CDN", header("X-Cache", "Hit from cloudfront"), "shared-cache", finding.Warn, "X-Cache: Hit from cloudfront"},
	})
}

func TestJWKS(t *testing.T) {
	keys := func(change func(t *testing.T, key member) []member) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.jwks = change(t, w.jwks[0]) }
	}
	with := func(name string, value any) func(*testing.T, *world) {
		return keys(func(_ *testing.T, key member) []member { key[name] = value; return []member{key} })
	}
	without := func(name string) func(*testing.T, *world) {
		return keys(func(_ *testing.T, key member) []member { delete(key, name); return []member{key} })
	}
	replace := func(path string, h http.HandlerFunc) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.replace["/prod-a"+path] = h }
	}
	defects := []defect{
		{"missing", replace("/keys.json", answer(404, "", "")), "jwks", finding.Fail, "answers 404"},
		{"redirect", replace("/keys.json", answer(307, "Location: /else", "")), "jwks", finding.Fail, "redirects (307)"},
		{"no JSON", replace("/keys.json", answer(200, "", "keys")), "jwks", finding.Fail, "is no JWKS"},
		{"null keys", replace("/keys.json", answer(200, "", `{"keys":null}`)), "jwks", finding.Fail, "is no JWKS"},
		{"no key", keys(func(*testing.T, member) []member { return []member{} }), "jwks-keys", finding.Fail, "has no key"},
		{"no kid", without("kid"), "jwks-keys", finding.Fail, "keys.json has no kid"},
		{"kid that is no string", with("kid", 7), "jwks-keys", finding.Fail, "keys.json has no kid"},
		{"same kid twice", keys(func(t *testing.T, key member) []member {
			other := publicJWK(t, newECKey(t))
			other["kid"] = key["kid"]
			return []member{key, other}
		}), "jwks-keys", finding.Fail, "has 2 keys with the kid"},
		{"private key", with("d", "AAAA"), "jwks-keys", finding.Fail, `has the private member "d"`},
		{"symmetric key", keys(func(*testing.T, member) []member { return []member{{"kty": "oct", "kid": "s", "k": "AAAA"}} }), "jwks-keys", finding.Fail, `private member "k"`},
		{"Ed25519", keys(func(*testing.T, member) []member {
			return []member{{"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "alg": "EdDSA", "use": "sig"}}
		}), "jwks-keys", finding.Fail, `key 1 (kid "ed")`},
		{"damaged key", with("x", "AAAA"), "jwks-keys", finding.Fail, "key 1"},
		{"encryption key", with("use", "enc"), "jwks-keys", finding.Fail, "use"},
		{"no use", without("use"), "jwks-keys", finding.Warn, "lacks use or alg"},
		{"no alg", without("alg"), "jwks-keys", finding.Warn, "lacks use or alg"},
		{"further member", with("key_ops", []string{"verify"}), "jwks-keys", finding.Warn, `has the member "key_ops"`},
		{"kid with control characters", with("kid", "\x1b[31m"), "jwks-keys", finding.Fail, "?[31m"},
		{"too many", keys(func(t *testing.T, key member) []member {
			list := []member{key}
			for range keystore.MaxKeysOfType {
				list = append(list, publicJWK(t, newECKey(t)))
			}
			return list
		}), "jwks-keys", finding.Fail, "101 keys of type EC"},
		{"no alias", replace(aliasPath, answer(404, "", "")), "jwks-alias", finding.Warn, "answers 404"},
		{"alias redirects", replace(aliasPath, answer(302, "Location: ../../keys.json", "")), "jwks-alias", finding.Fail, "redirects"},
		{"alias is no JWKS", replace(aliasPath, answer(200, "", "{}")), "jwks-alias", finding.Fail, "is no JWKS"},
		{"alias has another key", func(t *testing.T, w *world) {
			w.alias, w.options.Stored = []member{publicJWK(t, newECKey(t))}, nil
		}, "jwks-alias", finding.Fail, "other keys"},
		{"alias lacks a key", func(t *testing.T, w *world) {
			w.alias = w.jwks
			w.jwks = append(slices.Clone(w.jwks), publicJWK(t, newECKey(t)))
			w.options.Stored = nil
		}, "jwks-alias", finding.Fail, "other keys"},
		{"alias has the key under another kid", func(_ *testing.T, w *world) {
			other := maps.Clone(w.jwks[0])
			other["kid"] = "another"
			w.alias, w.options.Stored = []member{other}, nil
		}, "jwks-alias", finding.Fail, "other keys"},
		{"HEAD fails", replace("", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }), "head", finding.Warn, "EOF"},
		{"HEAD is refused", replace("", answer(404, "", "")), "head", finding.OK, "answers 404"},
		{"HEAD finds trouble", replace("", answer(502, "", "")), "head", finding.Warn, "answers 502"},
	}
	runDefects(t, defects)
}

func TestToken(t *testing.T) {
	now := time.Now()
	claim := func(name string, value any) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			if value == nil {
				delete(w.claims, name)
			} else {
				w.claims[name] = value
			}
			w.options.Token = w.token(t)
		}
	}
	literal := func(token string) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.options.Token = token }
	}
	runDefects(t, []defect{
		{"other issuer", claim("iss", testIssuer+"/"), "token-issuer", finding.Fail, `iss is "` + testIssuer + `/"`},
		{"unknown kid", func(t *testing.T, w *world) { w.kid = "x"; w.options.Token = w.token(t) }, "token-kid", finding.Fail, `kid "x" is not in the JWKS`},
		{"no kid", func(t *testing.T, w *world) { w.kid = ""; w.options.Token = w.token(t) }, "token-kid", finding.Fail, `kid ""`},
		{"other signer under the kid", func(t *testing.T, w *world) { w.signer = newECKey(t); w.options.Token = w.token(t) }, "token-signature", finding.Fail, "does not verify"},
		{"changed", func(t *testing.T, w *world) {
			parts := strings.Split(w.token(t), ".")
			w.claims["sub"] = "system:serviceaccount:kube-system:admin"
			parts[1] = strings.Split(w.token(t), ".")[1]
			w.options.Token = strings.Join(parts, ".")
		}, "token-signature", finding.Fail, "does not verify"},
		{"symmetric", func(t *testing.T, w *world) { w.options.Token = hmacToken(t, w) }, "token-form", finding.Fail, "signed with HS256"},
		{"algorithm that is not the key's", func(t *testing.T, w *world) { w.options.Token = rs384Token(t, w) }, "token-signature", finding.Fail, "(RS256)"},
		{"unsigned", literal("eyJhbGciOiJub25lIn0.e30."), "token-form", finding.Fail, "no signed JWT"},
		{"rubbish", literal("hunter2-hunter2-hunter2"), "token-form", finding.Fail, "no signed JWT"},
		{"too long", literal(strings.Repeat("a", 20_000+1)), "token-form", finding.Fail, "longer than 20000"},
		{"times that are no integers", claim("exp", 1.5), "token-form", finding.Fail, "integers"},
		{"expired", claim("exp", now.Add(-10*time.Minute).Unix()), "token-time", finding.Fail, "expired at"},
		{"just expired", claim("exp", now.Add(-time.Minute).Unix()), "token-time", finding.Warn, "expired at"},
		{"no exp", claim("exp", nil), "token-time", finding.Fail, "lacks exp or iat"},
		{"not yet valid", claim("nbf", now.Add(time.Hour).Unix()), "token-time", finding.Fail, "not valid before"},
		{"from the future", claim("iat", now.Add(time.Hour).Unix()), "token-time", finding.Fail, "in the future"},
		{"no aud", claim("aud", nil), "token-claims", finding.Fail, "no aud"},
		{"empty aud", claim("aud", []string{}), "token-claims", finding.Fail, "no aud"},
		{"aud as a string", claim("aud", "openshift"), "token-claims", finding.OK, "is for openshift"},
		{"two audiences", claim("aud", []string{"a", "b"}), "token-claims", finding.Warn, "2 audiences"},
		{"no sub", claim("sub", nil), "token-claims", finding.Fail, "no sub"},
		{"long sub", claim("sub", strings.Repeat("s", 256)), "token-claims", finding.Warn, "256 characters"},
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
	return sign(t, jose.SigningKey{Algorithm: jose.RS384, Key: key}, "r", w.claims)
}

func hmacToken(t *testing.T, w *world) string {
	t.Helper()
	return sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: make([]byte, 32)}, w.kid, w.claims)
}

func TestSpeed(t *testing.T) {
	for _, tt := range []struct {
		took time.Duration
		want finding.Severity
	}{{time.Millisecond, finding.OK}, {time.Second, finding.OK}, {1001 * time.Millisecond, finding.Warn}, {5 * time.Second, finding.Warn}} {
		fast, slowest := reply{response: response{URL: "a"}, Asked: true}, reply{response: response{URL: "slowest", Took: tt.took}, Asked: true}
		r := &visitor{}
		r.checkSpeed([]look{{Discovery: fast}, {Discovery: fast, JWKS: slowest, Alias: fast}})
		if len(r.Findings) != 1 || r.Findings[0].Severity != tt.want {
			t.Errorf("%v: %+v, want %s", tt.took, r.Findings, tt.want)
		}
	}
}

// A root that is sent is no fault, and is told to be of no use.
func TestChainWithRoot(t *testing.T) {
	const note = "the root at the end is of no use"
	w := newWorld(t)
	plain := w.visit(t)
	w.send(w.pki.leaf, w.pki.intermediate, w.pki.root)
	for _, tt := range []struct {
		findings []finding.Finding
		noted    bool
	}{{plain, false}, {w.visit(t), true}} {
		i := slices.IndexFunc(tt.findings, func(f finding.Finding) bool { return f.Check == "tls-chain" })
		if i < 0 || tt.findings[i].Severity != finding.OK || strings.Contains(tt.findings[i].Evidence, note) != tt.noted {
			t.Errorf("noted %t: %+v", tt.noted, tt.findings)
		}
	}
}
