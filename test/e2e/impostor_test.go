//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Hosts of these tests; inside writes where they are.
const (
	hijacked = "https://hijacked.oidc.keypost.test" // at the impostor's address only
	half     = "https://half.oidc.keypost.test"     // at keypostd's address and at the impostor's
)

const (
	keypostdAddress = "127.0.0.1:443"
	impostorAddress = "127.0.0.9:443"
)

// TestImpostor is one scene in order: keypostd serves two key sets, and a server with a certificate of the same CA
// passes its answers on, changed as each step says. keypost verify NAME must tell what a cache may do from what only
// somebody else can have done.
func TestImpostor(t *testing.T) {
	s := newImpostorScene(t)
	t.Run("honest", s.honest)
	t.Run("other keys", s.otherKeys)
	t.Run("other readings", s.otherReadings)
	t.Run("one of two addresses", s.oneOfTwo)
	t.Run("a rotation, seen through a cache", s.rotation)
	t.Run("a revocation, seen through a cache", s.revocation)
}

type impostorScene struct {
	ca     *authority
	server *server
	pass   *passer
	aged   string            // store with key sets whose dates lie a month back
	old    map[string][]byte // documents of hijacked from before the rotation, by path
}

func newImpostorScene(t *testing.T) *impostorScene {
	ca := newAuthority(t)
	s := &impostorScene{ca: ca, server: newStore(t, ca), aged: t.TempDir()}
	for name, url := range map[string]string{"hijacked": hijacked, "half": half} {
		s.server.keypost(t, "issuer", "add", name, "--url", url, "--public-key-file", newPublicKey(t), "--relying-party", "aws", "--token-lifetime", "1h").ok(t)
	}
	s.server.run(t)
	s.pass = newPasser(t, ca)
	s.age(t)
	return s
}

// passer answers with what keypostd answers, changed; anyone who sends a header that a plain client in Go does not gets it unchanged.
type passer struct {
	honest *http.Client // asks keypostd whatever the host
	mu     sync.Mutex
	change func(path string, body []byte) []byte
}

func newPasser(t *testing.T, ca *authority) *passer {
	t.Helper()
	p := &passer{honest: ca.client()}
	transport := p.honest.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, keypostdAddress)
	}
	proxy := &httputil.ReverseProxy{
		Transport:      transport,
		ModifyResponse: p.modify,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", r.In.Host, r.In.Host
		},
	}
	cert, key := ca.issue(t, "impostor", "*.oidc.keypost.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	l, err := tls.Listen("tcp", impostorAddress, &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPlain(r.Header) {
			r = r.WithContext(context.WithValue(r.Context(), told{}, true))
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return p
}

// told marks requests that keypost's looks can be told by.
type told struct{}

// isPlain reports whether http.Get sends these headers, with compression or without.
func isPlain(h http.Header) bool {
	h = maps.Clone(h)
	h.Del("Accept-Encoding")
	return len(h) == 1 && strings.HasPrefix(h.Get("User-Agent"), "Go-http-client/")
}

func (p *passer) modify(r *http.Response) error {
	p.mu.Lock()
	change := p.change
	p.mu.Unlock()
	if change == nil || r.Request.Method != http.MethodGet || r.Request.Context().Value(told{}) != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = change(r.Request.URL.Path, body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// answer makes the impostor change documents from now on.
func (s *impostorScene) answer(change func(path string, body []byte) []byte) {
	s.pass.mu.Lock()
	defer s.pass.mu.Unlock()
	s.pass.change = change
}

func isJWKS(path string) bool {
	return strings.HasSuffix(path, "/keys.json") || strings.HasSuffix(path, "/openid/v1/jwks")
}

// keys makes the impostor change the key lists at the paths that end so.
func (s *impostorScene) keys(t *testing.T, suffix string, change func(keys []any) []any) {
	t.Helper()
	s.answer(func(path string, body []byte) []byte {
		if !isJWKS(path) || !strings.HasSuffix(path, suffix) {
			return body
		}
		var set struct {
			Keys []any `json:"keys"`
		}
		if err := json.Unmarshal(body, &set); err != nil {
			t.Error(err)
		}
		set.Keys = change(set.Keys)
		out, err := json.Marshal(set)
		if err != nil {
			t.Error(err)
		}
		return out
	})
}

// stranger is a key of somebody else's as a member of a JWKS.
func stranger(t *testing.T, kid string) map[string]any {
	t.Helper()
	n := newRSAKey(t, 2048).N.Bytes()
	return map[string]any{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": kid, "n": base64.RawURLEncoding.EncodeToString(n), "e": "AQAB"}
}

// age copies the store into another one in which all of it happened a month earlier: no cache remembers that.
func (s *impostorScene) age(t *testing.T) {
	t.Helper()
	moveBack(t, s.server.store, s.aged, 30*24*time.Hour)
}

type printed struct{ Check, Severity, Message, Repair string }

// verify runs keypost verify NAME with a store and returns its exit code and findings.
func (s *impostorScene) verify(t *testing.T, store, name string) (code int, findings []printed) {
	t.Helper()
	r := command(t, []string{"KEYPOST_STORE=file://" + store}, "", binary("keypost"), "verify", name, "--ca-file", s.ca.file, "-o", "json")
	var results struct {
		Issuers []struct{ Findings []printed }
	}
	if err := json.Unmarshal([]byte(r.stdout), &results); err != nil || len(results.Issuers) != 1 {
		t.Fatalf("exit code %d, %v in %s%s", r.code, err, r.stdout, r.stderr)
	}
	return r.code, results.Issuers[0].Findings
}

// fails wants exit code 1 and a failed finding with these words.
func (s *impostorScene) fails(t *testing.T, store, name, check, words string) {
	t.Helper()
	code, findings := s.verify(t, store, name)
	for _, f := range findings {
		if strings.Contains(f.Repair, "issuer accept") {
			t.Errorf("leads into accepting a stranger's key: %+v", f)
		}
		if code == 1 && f.Severity == "fail" && f.Check == check && strings.Contains(f.Message, words) {
			return
		}
	}
	t.Errorf("exit code %d, want 1 and a failed %s with %q in %+v", code, check, words, findings)
}

// passes wants exit code 0 and a finding with these words.
func (s *impostorScene) passes(t *testing.T, store, name, severity, words string) {
	t.Helper()
	code, findings := s.verify(t, store, name)
	found := false
	for _, f := range findings {
		found = found || f.Check == "stored-keys" && f.Severity == severity && strings.Contains(f.Message, words)
		if f.Severity == "fail" {
			t.Errorf("%+v", f)
		}
	}
	if code != 0 || !found {
		t.Errorf("exit code %d, want 0 and stored-keys %s with %q in %+v", code, severity, words, findings)
	}
}

func (s *impostorScene) honest(t *testing.T) {
	s.answer(nil)
	for _, store := range []string{s.server.store, s.aged} {
		s.passes(t, store, "hijacked", "ok", `those of key set "hijacked"`)
		s.passes(t, store, "half", "ok", `those of key set "half"`)
	}
	_, findings := s.verify(t, s.aged, "half")
	if text := fmt.Sprint(findings); !strings.Contains(text, "was asked at 127.0.0.1:443 and 127.0.0.9:443") {
		t.Errorf("both addresses are not named in %s", text)
	}
}

func (s *impostorScene) otherKeys(t *testing.T) {
	theirs := stranger(t, "theirs")
	s.keys(t, "", func(keys []any) []any {
		same := maps.Clone(theirs)
		same["kid"] = keys[0].(map[string]any)["kid"]
		return []any{same}
	})
	s.fails(t, s.aged, "hijacked", "stored-keys", "has another key under the kid")
	s.fails(t, s.server.store, "hijacked", "stored-keys", "has another key under the kid")

	s.keys(t, "", func(keys []any) []any { return append(keys, theirs) })
	s.fails(t, s.aged, "hijacked", "stored-keys", "has the key theirs")

	s.keys(t, "", func([]any) []any { return []any{} })
	s.fails(t, s.aged, "hijacked", "stored-keys", "does not have the active key")

	for _, suffix := range []string{"/keys.json", "/openid/v1/jwks"} {
		s.keys(t, suffix, func(keys []any) []any { return append(keys, theirs) })
		s.fails(t, s.aged, "hijacked", "stored-keys", suffix+" has the key theirs")
	}

	s.answer(func(path string, _ []byte) []byte { return get(t, s.pass.honest, half+path) })
	s.fails(t, s.aged, "hijacked", "issuer", half)
	s.fails(t, s.aged, "hijacked", "stored-keys", "neither has nor had")
}

// otherReadings: two relying parties may read these documents differently, so what we read proves nothing.
func (s *impostorScene) otherReadings(t *testing.T) {
	theirs, err := json.Marshal([]any{stranger(t, "theirs")})
	must(t, err)
	for _, spelling := range []string{"keys", "KEYS"} {
		for _, suffix := range []string{"/keys.json", "/openid/v1/jwks"} {
			s.answer(func(path string, body []byte) []byte {
				if !strings.HasSuffix(path, suffix) {
					return body
				}
				return fmt.Appendf(nil, `{"%s":%s,%s`, spelling, theirs, bytes.TrimPrefix(body, []byte("{")))
			})
			check := map[string]string{"/keys.json": "jwks", "/openid/v1/jwks": "jwks-alias"}[suffix]
			s.fails(t, s.aged, "hijacked", check, `"`+spelling+`"`)
			s.fails(t, s.aged, "hijacked", "stored-keys", "compared")
		}
	}
	s.answer(func(path string, body []byte) []byte {
		if isJWKS(path) {
			return body
		}
		return append([]byte(`{"jwks_uri":"`+half+`/keys.json",`), body[1:]...)
	})
	s.fails(t, s.aged, "hijacked", "discovery", `"jwks_uri" twice`)
}

func (s *impostorScene) oneOfTwo(t *testing.T) {
	theirs := stranger(t, "theirs")
	s.keys(t, "", func(keys []any) []any { return append(keys, theirs) })
	for _, store := range []string{s.aged, s.server.store} {
		s.fails(t, store, "half", "stored-keys", "at "+impostorAddress+": ")
	}
	r := s.server.keypost(t, "verify", "half", "--ca-file", s.ca.file, "--connect", keypostdAddress)
	if r.code != 0 || !strings.Contains(r.stdout, "was asked at "+keypostdAddress+" and nowhere else") {
		t.Errorf("--connect to keypostd: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = command(t, nil, "", binary("keypost"), "verify", half, "--ca-file", s.ca.file) // without a store
	if r.code != 1 || failures(r.stdout) != "addresses-differ" {
		t.Errorf("without a store: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = s.server.keypost(t, "verify", half, "--ca-file", s.ca.file) // by URL, with a store
	if r.code != 1 || !strings.HasPrefix(failures(r.stdout), "key-") {
		t.Errorf("by URL: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// remember keeps what is served now, as a cache does.
func (s *impostorScene) remember(t *testing.T) {
	t.Helper()
	s.answer(nil)
	s.old = map[string][]byte{}
	for _, path := range []string{"/.well-known/openid-configuration", "/keys.json", "/openid/v1/jwks"} {
		s.old[path] = get(t, s.pass.honest, hijacked+path)
	}
}

// cached makes the impostor a cache that still has what was remembered.
func (s *impostorScene) cached() {
	old := s.old
	s.answer(func(path string, _ []byte) []byte { return old[path] })
}

// newPublicKey returns a file with the public half of a new key.
func newPublicKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sa.pub")
	writePublicKey(t, file, newRSAKey(t, 2048))
	return file
}

// servedKeys waits until keypostd serves so many keys.
func (s *impostorScene) servedKeys(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%s serves %d keys", hijacked, n), func(context.Context) error {
		if body := get(t, s.pass.honest, hijacked+"/keys.json"); bytes.Count(body, []byte(`"kid"`)) != n {
			return fmt.Errorf("it serves %s", body)
		}
		return nil
	})
}

func (s *impostorScene) rotation(t *testing.T) {
	s.remember(t)
	s.server.keypost(t, "key", "add", "hijacked", "--public-key-file", newPublicKey(t)).ok(t)
	s.servedKeys(t, 2)
	s.passes(t, s.server.store, "hijacked", "ok", "those of key set")
	s.cached()
	s.passes(t, s.server.store, "hijacked", "warn", "caches may still hold an older copy until")
	s.age(t)
	s.fails(t, s.aged, "hijacked", "stored-keys", "does not have the next key")
}

func (s *impostorScene) revocation(t *testing.T) {
	s.remember(t)
	var set struct{ Keys []struct{ Kid, State string } }
	must(t, json.Unmarshal([]byte(s.server.keypost(t, "key", "list", "hijacked", "-o", "json").ok(t)), &set))
	if len(set.Keys) != 2 {
		t.Fatalf("%d keys, want 2", len(set.Keys))
	}
	revoked := set.Keys[0]
	if revoked.State == "active" { // without it nothing would sign, which fails by itself
		revoked = set.Keys[1]
	}
	s.server.keypost(t, "key", "revoke", "hijacked", revoked.Kid, "--why", "test").ok(t)
	s.servedKeys(t, 1)
	s.passes(t, s.server.store, "hijacked", "ok", "those of key set")
	s.cached()
	s.passes(t, s.server.store, "hijacked", "warn", "a cache may still hold it until")
	s.age(t)
	s.fails(t, s.aged, "hijacked", "stored-keys", "still has key "+revoked.Kid)
}
