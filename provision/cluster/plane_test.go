package cluster

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keypost/keypost/keystore"
)

// plane stands for the kube-apiservers of a cluster, each with its own listener, all with a certificate for example.com: the
// TokenRequest API, the EndpointSlices of default/kubernetes, their own JWKS and, with pods, kubeadm's static pods. It answers the
// bearer of the token "good", and signs as real ones do; what real ones answer is shown by test/e2e.
type plane struct {
	signs   []signer // one per server
	known   []keystore.VerificationKey
	lacks   map[int]*ecdsa.PrivateKey   // by server: a key that another one signs with and it does not trust
	pods    string                      // what lists the pods of kube-system
	replace map[string]http.HandlerFunc // by path: what answers instead, on every server
	servers []*httptest.Server
	access  Access // of the first
	want    Wanted // in which nothing is wrong

	mu    sync.Mutex
	names []string // server names that were asked for in TLS
	asked []string // TokenRequest bodies
}

// signer is how one kube-apiserver signs.
type signer struct {
	issuer    string
	key       *ecdsa.PrivateKey
	kid       string        // empty: the key's own
	audiences []string      // --api-audiences
	longest   time.Duration // that it lets a token live; 0: as long as is asked for
}

const (
	// slicesPath is what the addresses are read from.
	slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	tokenPath  = "/api/v1/namespaces/default/serviceaccounts/default/token"
)

// newPlane starts one server per issuer.
func newPlane(t *testing.T, issuers []string, replace map[string]http.HandlerFunc) *plane {
	t.Helper()
	key, public := newSigningKey(t)
	p := &plane{known: []keystore.VerificationKey{public}, replace: replace, pods: `{"items":[]}`}
	p.want = Wanted{Issuer: wantedIssuer, Audiences: []string{"sts.amazonaws.com"}, Published: []keystore.VerificationKey{public}}
	for i, issuer := range issuers {
		p.signs = append(p.signs, signer{issuer: issuer, key: key, audiences: []string{issuer}})
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(t, i, w, r) }))
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.names = append(p.names, h.ServerName)
			return nil, nil
		}}
		s.StartTLS()
		t.Cleanup(s.Close)
		p.servers = append(p.servers, s)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.servers[0].Certificate().Raw})
	p.access.Kubeconfig = filepath.Join(t.TempDir(), "config")
	check(t, os.WriteFile(p.access.Kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: good
clusters:
- {name: c, cluster: {server: %[1]q, tls-server-name: example.com, certificate-authority-data: %[2]s}}
- {name: rancher, cluster: {server: "%[1]s/k8s/clusters/c-1", certificate-authority-data: %[2]s}}
- {name: untrusted, cluster: {server: %[1]q}}
users: [{name: good, user: {token: good}}, {name: bad, user: {token: bad}}]
contexts:
- {name: good, context: {cluster: c, user: good}}
- {name: bad, context: {cluster: c, user: bad}}
- {name: rancher, context: {cluster: rancher, user: good}}
- {name: untrusted, context: {cluster: untrusted, user: good}}
`, p.servers[0].URL, base64.StdEncoding.EncodeToString(ca)), 0o600))
	return p
}

func newSigningKey(t *testing.T) (*ecdsa.PrivateKey, keystore.VerificationKey) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	public, err := keystore.NewPublic(k.Public())
	check(t, err)
	return k, public
}

// answer is that of the i-th server.
func (p *plane) answer(t *testing.T, i int, w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/k8s/clusters/c-1") // as behind Rancher
	h, replaced := p.replace[path]
	switch {
	case r.Header.Get("Authorization") != "Bearer good":
		w.WriteHeader(http.StatusUnauthorized)
	case replaced:
		h(w, r)
	case path == slicesPath && r.URL.Query().Get("labelSelector") == "kubernetes.io/service-name=kubernetes":
		writeJSON(w, p.endpoints())
	case path == discoveryPath:
		writeJSON(w, map[string]any{"issuer": p.signs[i].issuer})
	case path == jwksPath && !accepts(r, "application/jwk-set+json"): // the only type in which a kube-apiserver has it
		w.WriteHeader(http.StatusNotAcceptable)
	case path == jwksPath:
		var set jose.JSONWebKeySet
		for _, k := range p.trusts(t, i) {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"})
		}
		writeJSON(w, set)
	case r.Method == http.MethodPost && path == tokenPath:
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.asked = append(p.asked, string(body))
		p.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		writeJSON(w, tokenReply(p.signs[i].mint(t, body)))
	case path == "/api/v1/namespaces/kube-system/pods":
		_, _ = io.WriteString(w, p.pods)
	case path == "/api/v1/namespaces/default":
		writeJSON(w, map[string]any{})
	default:
		refuses(http.StatusNotFound, "not\nfound here")(w, r)
	}
}

// accepts reports whether the client takes an answer of that media type. No Accept header takes any (RFC 9110, 12.5.1).
func accepts(r *http.Request, mediaType string) bool {
	accept := r.Header.Get("Accept")
	return accept == "" || strings.Contains(accept, "*/*") || strings.Contains(accept, mediaType)
}

func (p *plane) endpoints() any {
	type m = map[string]any
	var items []any
	for _, s := range p.servers { // a slice each, in no order, one of them twice
		port := json.Number(s.URL[strings.LastIndex(s.URL, ":")+1:])
		items = append(items, m{"endpoints": []m{{"addresses": []string{"127.0.0.1"}}}, "ports": []m{{"name": "https", "port": port}}})
	}
	return m{"items": append(items, items[0])}
}

// trusts returns the keys that a server verifies tokens with: those that are known, and what the servers sign with.
func (p *plane) trusts(t *testing.T, i int) []keystore.VerificationKey {
	all := slices.Clone(p.known)
	for _, signs := range p.signs {
		public, err := keystore.NewPublic(signs.key.Public())
		if err != nil {
			t.Error(err)
		}
		if signs.kid == "" && signs.key != p.lacks[i] && !slices.ContainsFunc(all, public.Equal) {
			all = append(all, public)
		}
	}
	return all
}

// mint signs as the TokenRequest API does: a request without audiences gets those of the API server.
func (s signer) mint(t *testing.T, body []byte) string {
	var request struct {
		Spec struct {
			Audiences         []string
			ExpirationSeconds int64
		}
	}
	public, err := keystore.NewPublic(s.key.Public())
	if err = errors.Join(err, json.Unmarshal(body, &request)); err != nil {
		t.Error(err)
	}
	audiences, seconds := request.Spec.Audiences, request.Spec.ExpirationSeconds
	if len(audiences) == 0 {
		audiences = s.audiences
	}
	if s.longest > 0 {
		seconds = min(seconds, int64(s.longest.Seconds()))
	}
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: s.key}, (&jose.SignerOptions{}).WithHeader("kid", cmp.Or(s.kid, string(public.ID()))))
	if err != nil {
		t.Error(err)
		return ""
	}
	now := time.Now().Unix()
	claims := map[string]any{"iss": s.issuer, "aud": audiences, "iat": now, "exp": now + seconds, "sub": "system:serviceaccount:default:default"}
	token, err := jwt.Signed(by).Claims(claims).Serialize()
	if err != nil {
		t.Error(err)
	}
	return token
}

func writeJSON(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

func tokenReply(token string) any { return map[string]any{"status": map[string]any{"token": token}} }

func refuses(code int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		writeJSON(w, map[string]any{"kind": "Status", "message": message})
	}
}
