// Package cluster is a cluster's issuer and the tokens of its workloads, as the tests of clouds need them: documents that a
// test may change and break, keys of every kind, and a clock that moves when it is told to.
package cluster

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
)

// IssuerURL and Subject are whose tokens Workload's claims belong to.
const (
	IssuerURL = "https://" + host + path
	Subject   = "system:serviceaccount:ns:sa"

	host, path = "oidc.example.com", "/prod-a"
)

// Clock is a time that does not move. It is that of its making, as certificates begin then.
type Clock struct{ now time.Time }

// NewClock is a clock that stands still.
func NewClock() *Clock { return &Clock{now: time.Now().Truncate(time.Second)} }

// Now is the clock's time.
func (c *Clock) Now() time.Time { return c.now }

// Issuer is a web server with an issuer's two documents, over HTTPS and, on port 80, without TLS. Only Change changes its fields
// once it is asked.
type Issuer struct {
	CA *authority.Authority

	Keys      []jose.JSONWebKey
	Discovery map[string]any
	Headers   http.Header // of the key set
	Status    int         // of every answer; 0: as it is
	Moved     bool        // answers with a redirect to the document

	mu           sync.Mutex
	addr, unsafe string // where it listens, with TLS and without
	hits         map[string]int
}

// Start makes an issuer of IssuerURL, with a certificate of its own authority, which it sends too, and no keys, until the test ends.
func Start(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{CA: authority.New(t), hits: map[string]int{}, Headers: http.Header{"Cache-Control": {"public, max-age=300"}},
		Discovery: map[string]any{"issuer": IssuerURL, "jwks_uri": IssuerURL + "/keys.json", "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"}}}
	safe, unsafe := httptest.NewUnstartedServer(i), httptest.NewServer(i)
	t.Cleanup(unsafe.Close)
	safe.TLS = &tls.Config{Certificates: []tls.Certificate{i.CA.Leaf(t, host).Pair(i.CA)}, MinVersion: tls.VersionTLS12}
	safe.Config.ErrorLog = log.New(io.Discard, "", 0)
	safe.StartTLS()
	t.Cleanup(safe.Close)
	i.addr, i.unsafe = safe.Listener.Addr().String(), unsafe.Listener.Addr().String()
	return i
}

// ServeHTTP answers one look at a document.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hits[r.URL.Path]++
	if i.Moved && r.URL.RawQuery == "" {
		http.Redirect(w, r, r.URL.Path+"?moved", http.StatusFound) //nolint:gosec // a test's own path
		return
	}
	if i.Status != 0 {
		w.WriteHeader(i.Status)
	}
	switch "https://" + r.Host + r.URL.Path {
	case IssuerURL + "/.well-known/openid-configuration", "https://" + host + "/.well-known/openid-configuration" + path:
		w.Header().Set("Cache-Control", "max-age=3600") // which says nothing of the key set
		_ = json.NewEncoder(w).Encode(i.Discovery)
	case IssuerURL + "/keys.json":
		for k, v := range i.Headers {
			w.Header()[k] = v
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.Keys})
	default:
		http.NotFound(w, r)
	}
}

// Change alters the issuer between two calls.
func (i *Issuer) Change(f func(*Issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(i)
}

// Hits is how often a path below the issuer's was asked for.
func (i *Issuer) Hits(below string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits[path+below]
}

// Dial finds the issuer at every address.
func (i *Issuer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	to := i.addr
	if strings.HasSuffix(address, ":80") {
		to = i.unsafe
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

// Signer is a key with its kid.
type Signer struct {
	KID string
	Alg jose.SignatureAlgorithm
	Key crypto.Signer
}

// Public is the signer's entry in a key set.
func (s Signer) Public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.Key.Public(), KeyID: s.KID, Algorithm: string(s.Alg), Use: "sig"}
}

// Sign is a token of these claims.
func (s Signer) Sign(claims map[string]any) string { return keys.JWS(s.Key, s.Alg, s.KID, claims) }

// Workload is the claims of a good token, changed by pairs of name and value; a nil takes the claim away.
func Workload(now time.Time, changes ...any) map[string]any {
	c := map[string]any{"iss": IssuerURL, "sub": Subject, "aud": []string{"openshift"}, "iat": now.Unix(), "nbf": now.Unix(),
		"exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		name := fmt.Sprint(changes[i])
		if c[name] = changes[i+1]; c[name] == nil {
			delete(c, name)
		}
	}
	return c
}
