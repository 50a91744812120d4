package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// TestMigrateScripts runs testdata/awsmigrate/*.txtar against the real program, a played account and a played cluster.
func TestMigrateScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "awsmigrate"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "serve": accounts{t}.serve, "trust": trust, "kids": setKids, "keyset": writeKeySet, "order": inOrder,
			"fakeaws": accounts{t}.start, "calls": calls, "account": printAccount, "iam": callIAM, "said": said,
			"plane": startPlane, "signs": planeSigns, "past": setPast, "json": jsonObject, "hint": hint,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[accountKey{}] = &fakeAccount{}
			env.Values[planeKey{}] = &fakePlane{}
			env.Setenv("KEYPOST_STORE", "file://./store")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

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
func startPlane(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: plane kubernetes|openshift KEYFILE PODS ISSUER…")
	}
	p := ts.Value(planeKey{}).(*fakePlane)
	keys, err := pubkey.Parse(args[1], []byte(ts.ReadFile(args[1])))
	ts.Check(err)
	p.openShift, p.key, p.pods, p.issuers = args[0] == "openshift", keys[0], ts.ReadFile(args[2]), args[3:]
	kubeconfig, err := p.listen(ts.MkAbs("."))
	ts.Check(err)
	for i, server := range p.servers {
		ts.Defer(server.Close)
		ts.Setenv(fmt.Sprintf("SERVER%d", i+1), strings.TrimPrefix(server.URL, "https://"))
	}
	ts.Setenv("KUBECONFIG_FILE", kubeconfig)
}

// listen starts a server per issuer and writes a kubeconfig for the first.
func (p *fakePlane) listen(dir string) (kubeconfig string, err error) {
	for i := range p.issuers {
		s := httptest.NewTLSServer(p.handler(i))
		p.mu.Lock()
		p.servers = append(p.servers, s)
		p.mu.Unlock()
	}
	first := p.servers[0]
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate().Raw})
	kubeconfig = filepath.Join(dir, "kubeconfig")
	return kubeconfig, os.WriteFile(kubeconfig, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: good}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, first.URL, base64.StdEncoding.EncodeToString(ca)), 0o600)
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
func planeSigns(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signs NUMBER ISSUER")
	}
	p := ts.Value(planeKey{}).(*fakePlane)
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.issuers[n-1] = args[1]
}

// setPast sets a variable to a time before now: past NAME DURATION.
func setPast(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: past NAME DURATION")
	}
	d, err := time.ParseDuration(args[1])
	ts.Check(err)
	ts.Setenv(args[0], cli.Stamp(time.Now().Add(-d)))
}
