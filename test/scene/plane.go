package scene

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
)

// Plane is a control plane of one kube-apiserver, with what a migration asks of it.
type Plane struct {
	*httptest.Server
	Pods string // JSON

	key    keystore.VerificationKey
	issuer string
}

// NewPlane starts one that signs with a key as an issuer, until the test ends. It runs no pods.
func NewPlane(t testing.TB, key keystore.VerificationKey, issuer string) *Plane {
	t.Helper()
	p := &Plane{key: key, issuer: issuer, Pods: `{"items":[]}`}
	p.Server = httptest.NewTLSServer(p.handler())
	t.Cleanup(p.Close)
	return p
}

// Access is how the cluster is asked.
func (p *Plane) Access(t testing.TB) cluster.Access {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	check(t, os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: good}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, p.URL, base64.StdEncoding.EncodeToString(ca)), 0o600))
	return cluster.Access{Kubeconfig: file}
}

func (p *Plane) handler() http.Handler {
	type m = map[string]any
	mux := http.NewServeMux()
	answer := func(pattern string, body func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(body()) })
	}
	answer("GET /.well-known/openid-configuration", func() any { return m{"issuer": p.issuer} })
	answer("GET /openid/v1/jwks", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Key(), KeyID: string(p.key.ID()), Algorithm: p.key.Alg(), Use: "sig"}}}
	})
	answer("GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", func() any {
		u, _ := url.Parse(p.URL)
		return m{"items": []m{{"endpoints": []m{{"addresses": []string{"127.0.0.1"}}}, "ports": []m{{"port": json.Number(u.Port())}}}}}
	})
	answer("POST /api/v1/namespaces/default/serviceaccounts/default/token", func() any {
		part := func(v any) string {
			data, _ := json.Marshal(v)
			return base64.RawURLEncoding.EncodeToString(data)
		}
		return m{"status": m{"token": part(m{"kid": p.key.ID()}) + "." + part(m{"iss": p.issuer, "iat": 1, "exp": 601}) + ".c2ln"}}
	})
	answer("GET /api/v1/pods", func() any { return json.RawMessage(p.Pods) })
	return mux
}
