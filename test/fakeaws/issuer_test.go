package fakeaws

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// clock is a time that moves only when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)} }

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

// authority is a CA of a test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA " + t.Name()}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	return authority{key, must(x509.ParseCertificate(der))(t)}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a authority) certificate(t testing.TB, host string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter}
	der := must(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))(t)
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}

// issuer is a web server with an issuer's two documents, which a test may change.
type issuer struct {
	ca   authority
	addr string

	mu        sync.Mutex
	keys      []jose.JSONWebKey
	discovery map[string]any
	headers   http.Header // of the key set
	moved     bool        // answers with a redirect to the document
	hits      map[string]int
}

func startIssuer(t testing.TB) *issuer {
	i := &issuer{ca: newAuthority(t), hits: map[string]int{}, headers: http.Header{"Cache-Control": {"public, max-age=300"}}}
	i.discovery = map[string]any{"issuer": issuerURL, "jwks_uri": issuerURL + "/keys.json",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"}}
	server := httptest.NewUnstartedServer(i)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{i.ca.certificate(t, "oidc.example.com")}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	i.addr = server.Listener.Addr().String()
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
	case issuerURL + "/.well-known/openid-configuration":
		w.Header().Set("Cache-Control", "max-age=3600")
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

func (i *issuer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, i.addr)
}

// signer is a key with its kid.
type signer struct {
	kid string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

func newSigner(t testing.TB, kid string, alg jose.SignatureAlgorithm) signer {
	var key crypto.Signer
	switch alg {
	case jose.ES256:
		key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	case jose.ES384:
		key = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	case jose.ES512:
		key = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))(t)
	default:
		key = must(rsa.GenerateKey(rand.Reader, 2048))(t)
	}
	return signer{kid, alg, key}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.kid, Algorithm: string(s.alg), Use: "sig"}
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
	c := map[string]any{"iss": issuerURL, "sub": "system:serviceaccount:ns:sa", "aud": []string{"openshift"},
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	for i := 0; i < len(changes); i += 2 {
		name := fmt.Sprint(changes[i])
		if c[name] = changes[i+1]; c[name] == nil {
			delete(c, name)
		}
	}
	return c
}
