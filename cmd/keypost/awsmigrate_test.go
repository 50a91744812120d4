package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

type planeKey struct{}

// fakePlane is a control plane of kube-apiservers that answers what aws migrate asks.
type fakePlane struct {
	openShift bool
	pods      string // JSON
	key       keystore.VerificationKey

	mu      sync.Mutex
	servers []*httptest.Server
	issuers []string
}

// startPlane plays the kube-apiservers of a cluster: plane kubernetes|openshift KEYFILE PODS ISSUER… Each signs as its
// issuer, with the key of a public key file; PODS is a file with what the cluster answers for its pods. It writes the
// kubeconfig $KUBECONFIG_FILE.
func startPlane(ts *testscript.TestScript, args []string) {
	p := ts.Value(planeKey{}).(*fakePlane)
	keys, err := pubkey.Parse(args[1], []byte(ts.ReadFile(args[1])))
	ts.Check(err)
	p.openShift, p.key, p.pods, p.issuers = args[0] == "openshift", keys[0], ts.ReadFile(args[2]), args[3:]
	for i := range p.issuers {
		server := httptest.NewTLSServer(p.handler(i))
		ts.Defer(server.Close)
		p.mu.Lock()
		p.servers = append(p.servers, server)
		p.mu.Unlock()
		ts.Setenv(fmt.Sprintf("SERVER%d", i+1), strings.TrimPrefix(server.URL, "https://"))
	}
	ts.Setenv("KUBECONFIG_FILE", writeKubeconfig(ts, p.servers[0]))
}

func (p *fakePlane) handler(i int) http.Handler {
	type m = map[string]any
	mux := http.NewServeMux()
	answer := func(pattern string, body func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(body()) })
	}
	answer("GET /.well-known/openid-configuration", func() any { return m{"issuer": p.issuer(i)} })
	answer("GET /openid/v1/jwks", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Key(), KeyID: string(p.key.ID()), Algorithm: p.key.Alg(), Use: "sig"}}}
	})
	answer("GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices", func() any {
		p.mu.Lock()
		defer p.mu.Unlock()
		var items []any
		for _, s := range p.servers {
			items = append(items, m{"endpoints": []m{{"addresses": []string{"127.0.0.1"}}}, "ports": []m{{"port": json.Number(portOf(s))}}})
		}
		return m{"items": items}
	})
	answer("POST /api/v1/namespaces/default/serviceaccounts/default/token", func() any {
		part := func(v any) string { return base64.RawURLEncoding.EncodeToString([]byte(asJSON(v))) }
		return m{"status": m{"token": part(m{"kid": p.key.ID()}) + "." + part(m{"iss": p.issuer(i), "iat": 1, "exp": 601}) + ".c2ln"}}
	})
	answer("GET /api/v1/pods", func() any { return json.RawMessage(p.pods) })
	if p.openShift {
		answer("GET /apis/config.openshift.io/v1", func() any { return m{} })
		answer("GET /apis/config.openshift.io/v1/authentications/cluster", func() any { return m{"spec": m{"serviceAccountIssuer": p.issuer(i)}} })
	}
	return mux
}

func (p *fakePlane) issuer(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issuers[i]
}

// planeSigns restarts a kube-apiserver with another issuer: signs NUMBER ISSUER.
func planeSigns(ts *testscript.TestScript, args []string) {
	p := ts.Value(planeKey{}).(*fakePlane)
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issuers[n-1] = args[1]
}

// setPast sets a variable to a time before now: past NAME DURATION.
func setPast(ts *testscript.TestScript, args []string) {
	d, err := time.ParseDuration(args[1])
	ts.Check(err)
	ts.Setenv(args[0], cli.Stamp(time.Now().Add(-d)))
}
