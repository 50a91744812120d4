package enroll_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
)

// plane is a kube-apiserver as far as an enrolment asks one.
type plane struct {
	*httptest.Server
	mu   sync.Mutex
	uid  string
	keys []keystore.VerificationKey
	jwks string // in place of the keys
	name string // its own issuer
	hang bool
}

func newPlane(t testing.TB, uid string, keys ...keystore.VerificationKey) *plane {
	t.Helper()
	p := &plane{uid: uid, keys: keys, name: "https://kubernetes.default.svc"}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(p.answer))
	t.Cleanup(p.Close)
	return p
}

func (p *plane) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *plane) answer(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hang {
		p.mu.Unlock()
		<-r.Context().Done()
		p.mu.Lock()
		return
	}
	switch r.URL.Path {
	case "/api/v1/namespaces/kube-system":
		fmt.Fprintf(w, `{"metadata": {"uid": %q}}`, p.uid)
	case "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer": %q}`, p.name)
	case "/openid/v1/jwks":
		if p.jwks != "" {
			fmt.Fprint(w, p.jwks)
			return
		}
		var set jose.JSONWebKeySet
		for _, k := range p.keys {
			set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"})
		}
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

// kubeconfig writes one for the plane.
func (p *plane) kubeconfig(t testing.TB, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), p.config(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) config() []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: good}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, p.URL, base64.StdEncoding.EncodeToString(ca))
}

func rules(t testing.TB) enroll.Rules {
	t.Helper()
	pattern, err := issuer.ParsePattern("https://oidc.example.com/{name}", false)
	if err != nil {
		t.Fatal(err)
	}
	return enroll.Rules{URL: pattern.URL, Policy: keystore.Policy{RelyingParties: []string{"aws"}}}
}

// newEnroller is one process.
func newEnroller(t testing.TB, st *keystore.Store, source enroll.Source) *enroll.Enroller {
	t.Helper()
	return enroll.New(enroll.Config{
		Rules: rules(t), Store: st, Source: source, Look: cluster.Identify,
		Change: func(why string) keystore.Change { return keystore.Change{At: time.Now(), By: "enroll@test", Why: why} },
	})
}

// passOf makes a pass and returns what it told.
func passOf(t testing.TB, e *enroll.Enroller) map[keystore.Name]enroll.Report {
	t.Helper()
	all := map[keystore.Name]enroll.Report{}
	if err := e.Pass(t.Context(), func(r enroll.Report, _ bool) { all[r.Name] = r }); err != nil {
		t.Fatal(err)
	}
	return all
}

// states returns the states of a key set's keys.
func states(t testing.TB, st keystore.Reader, n keystore.Name) map[keystore.KeyID]keystore.State {
	t.Helper()
	s, _, err := st.Load(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	all := map[keystore.KeyID]keystore.State{}
	for _, k := range s.Keys() {
		all[k.ID()] = k.State
	}
	return all
}

func someKeys(t testing.TB, n int) (all []keystore.VerificationKey) {
	t.Helper()
	for range n {
		all = append(all, storetest.Key(t))
	}
	return all
}
