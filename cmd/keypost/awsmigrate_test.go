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
		server := playAPI(ts, p.routes(i))
		p.mu.Lock()
		p.servers = append(p.servers, server)
		p.mu.Unlock()
		ts.Setenv(fmt.Sprintf("SERVER%d", i+1), strings.TrimPrefix(server.URL, "https://"))
	}
	ts.Setenv("KUBECONFIG_FILE", writeKubeconfig(ts, p.servers[0]))
}

func (p *fakePlane) routes(i int) map[string]func(*http.Request) any {
	routes := map[string]func(*http.Request) any{
		"GET /.well-known/openid-configuration": func(*http.Request) any { return member{"issuer": p.issuer(i)} },
		"GET /openid/v1/jwks":                   func(*http.Request) any { return jwksOf(p.key) },
		"GET /api/v1/pods":                      func(*http.Request) any { return json.RawMessage(p.pods) },
		"GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices": func(*http.Request) any {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slicesOf(p.servers...)
		},
		"POST /api/v1/namespaces/default/serviceaccounts/default/token": func(*http.Request) any {
			part := func(v any) string { return base64.RawURLEncoding.EncodeToString([]byte(asJSON(v))) }
			return member{"status": member{"token": part(member{"kid": p.key.ID()}) + "." + part(member{"iss": p.issuer(i), "iat": 1, "exp": 601}) + ".c2ln"}}
		},
	}
	if p.openShift {
		routes["GET /apis/config.openshift.io/v1"] = func(*http.Request) any { return member{} }
		routes["GET /apis/config.openshift.io/v1/authentications/cluster"] = func(*http.Request) any {
			return member{"spec": member{"serviceAccountIssuer": p.issuer(i)}}
		}
	}
	return routes
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
