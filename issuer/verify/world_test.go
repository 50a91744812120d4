package verify

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
)

const testIssuer = "https://oidc.example.com/prod-a"

// world is an issuer in which nothing is wrong until a test breaks it.
type world struct {
	discovery map[string]any
	jwks      []map[string]any
	alias     []map[string]any // nil: as jwks
	header    http.Header
	mu        *sync.Mutex                 // of replace: a handler whose client has gone may still look there
	replace   map[string]http.HandlerFunc // by path
	tls       *tls.Config
	pki       *pki
	options   Options
	stored    keystore.KeySet // what the store has: the first key, as long as no test changes it
	storeErr  error
	found     []finding.Finding // by the latest visit
	at        string            // where it is served
	anyHost   bool              // every host is served, and not only the issuer's
	seen      func(*http.Request)

	signer *ecdsa.PrivateKey
	kid    string
	claims map[string]any
}

// member is a member of a JWK or a claim.
type member = map[string]any

func newWorld(t *testing.T) *world {
	t.Helper()
	p := newPKI(t)
	w := &world{pki: p, signer: newECKey(t), replace: map[string]http.HandlerFunc{}, mu: new(sync.Mutex)}
	w.kid = string(public(t, w.signer).ID())
	w.stored = newSet(t, w.signer)
	w.heal(t)
	w.claims = soundClaims()
	w.options = Options{
		URL: testIssuer, Stored: w.readStored,
		Network: fetch.Network{
			RootCAs: p.root.Pool(), Lookup: func(context.Context, string) ([]netip.Addr, error) { return addrs("192.0.2.1"), nil },
		},
		hasRoute: func(string) bool { return true },
	}
	return w
}

// heal makes the world serve what its store has, as keypostd does.
func (w *world) heal(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jwks, w.alias, w.replace = nil, nil, map[string]http.HandlerFunc{}
	var algs []string
	for _, k := range w.stored.Keys() {
		w.jwks = append(w.jwks, asJWK(t, k.VerificationKey))
		if !slices.Contains(algs, k.Alg()) {
			algs = append(algs, k.Alg())
		}
	}
	w.discovery = member{
		"issuer": testIssuer, "jwks_uri": testIssuer + "/keys.json",
		"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": algs, "claims_supported": []string{"aud", "exp", "iat", "iss", "sub"},
	}
	w.header = http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"public, max-age=300"}, "Etag": {`"x"`}}
	w.tls = &tls.Config{}
	w.send(w.pki.leaf, w.pki.intermediate)
}

// asJWK is a key as it is published.
func asJWK(t *testing.T, k keystore.VerificationKey) member {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKey{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"})
	check(t, err)
	var m member
	check(t, json.Unmarshal(raw, &m))
	return m
}

func (w *world) readStored(context.Context) (keystore.KeySet, error) { return w.stored, w.storeErr }

func soundClaims() member {
	now := time.Now()
	return member{
		"iss": testIssuer, "sub": "system:serviceaccount:default:app", "aud": []string{"sts.amazonaws.com"},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// longAgo is when the world's keys were published: no cache remembers the time before.
func longAgo() time.Time { return time.Now().Add(-30 * 24 * time.Hour) }

func newSet(t *testing.T, signers ...*ecdsa.PrivateKey) keystore.KeySet {
	t.Helper()
	var keys []keystore.VerificationKey
	for _, k := range signers {
		keys = append(keys, public(t, k))
	}
	s, err := keystore.New(keystore.Change{At: longAgo()}, keystore.Spec{
		Name: "prod-a", Issuers: storetest.URLs(t, testIssuer), Keys: keys, Policy: keystore.Policy{RelyingParties: []string{"aws"}},
	})
	check(t, err)
	return s
}

func public(t *testing.T, k *ecdsa.PrivateKey) keystore.VerificationKey {
	t.Helper()
	p, err := keystore.NewPublic(k.Public())
	check(t, err)
	return p
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	if w.seen != nil {
		w.seen(r)
	}
	w.mu.Lock()
	h, ok := w.replace[r.URL.Path]
	w.mu.Unlock()
	if ok {
		h(rw, r)
		return
	}
	set := w.jwks
	switch r.URL.Path {
	case "/prod-a":
		w.write(rw, []byte("an issuer"))
	case "/prod-a" + fetch.DiscoveryPath:
		body, _ := json.Marshal(w.discovery)
		w.write(rw, body)
	case "/prod-a" + fetch.AliasPath:
		if w.alias != nil {
			set = w.alias
		}
		fallthrough
	case "/prod-a/keys.json":
		body, _ := json.Marshal(member{"keys": set})
		w.write(rw, body)
	default:
		http.NotFound(rw, r)
	}
}

// write answers with the world's headers; an ETag of "x" stands for that of the content.
func (w *world) write(rw http.ResponseWriter, body []byte) {
	for k, v := range w.header {
		rw.Header()[k] = v
	}
	if rw.Header().Get("ETag") == `"x"` {
		rw.Header().Set("ETag", strconv.Quote(fmt.Sprintf("%x", sha256.Sum256(body))))
	}
	_, _ = rw.Write(body)
}

// start serves the world on loopback and sends every connection there.
func (w *world) start(t *testing.T) {
	t.Helper()
	w.at = w.address(t)
	if w.options.Dial == nil {
		w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
			if host, _, _ := net.SplitHostPort(asked); !w.anyHost && host != "192.0.2.1" && host != "oidc.example.com" {
				t.Errorf("connection to %s", asked)
			}
			return (&net.Dialer{}).DialContext(ctx, network, w.at)
		}
	}
}

func (w *world) visit(t *testing.T) []finding.Finding {
	t.Helper()
	w.start(t)
	w.found = Examine(t.Context(), w.options).Findings
	return w.found
}

// token signs the claims.
func (w *world) token(t *testing.T) string {
	t.Helper()
	return keys.JWS(w.signer, jose.ES256, w.kid, w.claims)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newECKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return k
}

func publicJWK(t *testing.T, k *ecdsa.PrivateKey) member {
	t.Helper()
	point, err := k.PublicKey.Bytes()
	check(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	return member{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": string(public(t, k).ID()), "x": b64(point[1:33]), "y": b64(point[33:])}
}

// pki is a root, an intermediate and a leaf for oidc.example.com and localhost.
type pki struct{ root, intermediate, leaf *authority.Authority }

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{root: lastingCA(t, "root", nil)}
	p.intermediate = lastingCA(t, "intermediate", p.root)
	p.leaf = p.issueLeaf(t, 90*24*time.Hour)
	return p
}

// lastingCA is a CA that no certificate of a test outlasts.
func lastingCA(t *testing.T, name string, parent *authority.Authority) *authority.Authority {
	t.Helper()
	template := authority.CA(name)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(365*24*time.Hour)
	return authority.Certify(t, parent, template)
}

func (p *pki) issueLeaf(t *testing.T, left time.Duration, names ...string) *authority.Authority {
	t.Helper()
	return p.issueFor(t, 90*24*time.Hour, left, names...)
}

// shortLived is a certificate made for six days.
func (p *pki) shortLived(t *testing.T, left time.Duration) *authority.Authority {
	t.Helper()
	return p.issueFor(t, 6*24*time.Hour-left, left)
}

func (p *pki) issueFor(t *testing.T, age, left time.Duration, names ...string) *authority.Authority {
	t.Helper()
	if names == nil {
		names = []string{"oidc.example.com", "localhost"}
	}
	return authority.Certify(t, p.intermediate, template(age, left, names...))
}

// template is a leaf certificate to be issued.
func template(age, left time.Duration, names ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: "leaf"}, DNSNames: names, NotBefore: time.Now().Add(-age), NotAfter: time.Now().Add(left),
	}
}

// send makes the server send these certificates; the first is the leaf.
func (w *world) send(chain ...*authority.Authority) {
	w.tls.Certificates = []tls.Certificate{chain[0].Pair(chain[1:]...)}
}

// address serves the world at an address of its own.
func (w *world) address(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = w.tls
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
