package fakegcp

import (
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
)

// clock is a time that moves only when it is told to. It begins now, as certificates do.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().Truncate(time.Second)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// issuer is a web server with an issuer's two documents, which a test may change.
type issuer struct {
	ca    *authority.Authority
	addr  string
	plain string // where the same is served without TLS

	mu        sync.Mutex
	keys      []jose.JSONWebKey
	discovery map[string]any
	headers   http.Header // of the key set
	moved     bool        // answers with a redirect to the document
	hits      map[string]int
}

func startIssuer(t testing.TB) *issuer {
	i := &issuer{hits: map[string]int{}, headers: http.Header{"Cache-Control": {"public, max-age=300"}}}
	real, ok := t.(*testing.T)
	if !ok {
		t.Fatal("the authority is for tests")
	}
	i.ca = authority.New(real)
	dir := t.TempDir()
	i.ca.Issue(real, dir, "oidc.example.com")
	certificate := must(tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))(t)
	i.discovery = map[string]any{"issuer": issuerURL, "jwks_uri": issuerURL + "/keys.json"}
	server := httptest.NewUnstartedServer(i)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	i.addr = server.Listener.Addr().String()
	unsafe := httptest.NewServer(i)
	t.Cleanup(unsafe.Close)
	i.plain = unsafe.Listener.Addr().String()
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hits[r.URL.Path]++
	if i.moved && r.URL.RawQuery == "" {
		http.Redirect(w, r, r.URL.Path+"?moved", http.StatusFound)
		return
	}
	switch "https://" + r.Host + r.URL.Path {
	case issuerURL + "/.well-known/openid-configuration", "https://oidc.example.com/.well-known/openid-configuration/prod-a":
		_ = json.NewEncoder(w).Encode(i.discovery)
	case issuerURL + "/keys.json":
		for k, v := range i.headers {
			w.Header()[k] = v
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.keys})
	default:
		http.NotFound(w, r)
	}
}

// change alters the issuer between two calls.
func (i *issuer) change(f func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i)
}

func (i *issuer) hit(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits["/prod-a"+path]
}

func (i *issuer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if strings.HasSuffix(address, ":80") {
		return d.DialContext(ctx, network, i.plain)
	}
	return d.DialContext(ctx, network, i.addr)
}

// signer is a key with its kid.
type signer struct {
	kid string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

// The keys of all tests: making one takes long.
var firstKey, secondKey = keys.NewRSA(), keys.NewRSA()

// newSigner has an RSA key; that of k2 is another one.
func newSigner(_ testing.TB, kid string) signer {
	if kid == "k2" {
		return signer{kid, jose.RS256, secondKey()}
	}
	return signer{kid, jose.RS256, firstKey()}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid, Algorithm: string(s.alg), Use: "sig"}
}

// upload is the key set as it is uploaded to a provider.
func upload(t testing.TB, keys ...jose.JSONWebKey) string {
	return string(must(json.Marshal(jose.JSONWebKeySet{Keys: keys}))(t))
}

func (s signer) sign(t testing.TB, claims map[string]any) string {
	var options jose.SignerOptions
	if s.kid != "" {
		options.WithHeader("kid", s.kid)
	}
	j := must(jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: s.key}, &options))(t)
	return must(must(j.Sign(must(json.Marshal(claims))(t)))(t).CompactSerialize())(t)
}

// workload is the claims of a good token, changed by pairs of name and value; a nil takes the claim away.
func workload(now time.Time, changes ...any) map[string]any {
	c := map[string]any{"iss": issuerURL, "sub": subject, "aud": []string{"openshift"},
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		name := fmt.Sprint(changes[i])
		if c[name] = changes[i+1]; c[name] == nil {
			delete(c, name)
		}
	}
	return c
}
