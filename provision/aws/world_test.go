package aws_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/signingkey"
	"github.com/keypost/keypost/test/fakeaws"
)

const (
	issuerURL = "https://oidc.example.com/prod-a"
	oldURL    = "https://prod-a-oidc.s3.us-east-1.amazonaws.com"
)

// world is all that an installation needs: an account, a store that is served, an output directory.
type world struct {
	*fakeaws.Server
	dir   string
	store *keystore.Store
	site  install.Site

	mu     sync.Mutex
	events []install.Event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: fakeaws.Start(t, fakeaws.Options{}), dir: t.TempDir()}
	for _, v := range w.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	backend, err := filestore.Create(filepath.Join(w.dir, "store"))
	must(t, err)
	w.store = keystore.NewStore(backend)
	server := httptest.NewTLSServer(http.HandlerFunc(w.serve)) // its certificate names *.example.com
	t.Cleanup(server.Close)
	w.site.RootCAs, w.site.Connect = x509.NewCertPool(), server.Listener.Addr().String()
	w.site.RootCAs.AddCert(server.Certificate())
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve answers as a keypostd that reads the store for every request.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	name, document, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s, _, err := w.store.Load(r.Context(), keystore.Name(name))
	if err != nil {
		http.NotFound(rw, r)
		return
	}
	var body []byte
	switch "/" + document {
	case issuer.JWKSPath, issuer.JWKSAliasPath:
		body, err = issuer.RenderJWKS(s)
	default:
		body, err = issuer.RenderDiscovery(s, s.Issuers()[0])
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(body)
}

func (w *world) report(e install.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// reported returns the events since the last time, a line each.
func (w *world) reported() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, e := range w.events {
		fmt.Fprintf(&b, "%s %s\n", e.Kind, e.Text)
	}
	w.events = nil
	return b.String()
}

func (w *world) keyStore() install.KeyStore {
	open := func(context.Context) (*keystore.Store, error) { return w.store, nil }
	return install.KeyStore{Name: "the store", Change: func() keystore.Change { return keystore.Change{At: time.Now(), By: "me"} }, Open: open, Create: open}
}

func (w *world) out() string { return filepath.Join(w.dir, "out") }

// writeKeys makes a key pair that is quicker to make than Create's own.
func (w *world) writeKeys(t *testing.T) keystore.VerificationKey {
	t.Helper()
	k, err := signingkey.Generate(signingkey.RSA2048)
	must(t, err)
	must(t, os.MkdirAll(w.out(), 0o700))
	must(t, k.Write(signingkey.Paths{Private: filepath.Join(w.out(), ccoctl.PrivateKeyName), Public: filepath.Join(w.out(), ccoctl.PublicKeyName)}))
	return k.Public()
}

// requests writes CredentialsRequests with these names.
func (w *world) requests(t *testing.T, names ...string) *aws.RequestedRoles {
	t.Helper()
	dir := filepath.Join(w.dir, "requests")
	must(t, os.MkdirAll(dir, 0o700))
	for _, n := range names {
		text := strings.ReplaceAll(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: NAME, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: NAME-creds, namespace: ns-NAME}
  serviceAccountNames: [NAME]
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: AWSProviderSpec
    statementEntries: [{effect: Allow, action: ["s3:GetObject"], resource: "*"}]
`, "NAME", n)
		must(t, os.WriteFile(filepath.Join(dir, n+".yaml"), []byte(text), 0o600))
	}
	return &aws.RequestedRoles{Dir: dir}
}

func (w *world) create(t *testing.T, names ...string) aws.CreateOptions {
	t.Helper()
	return aws.CreateOptions{
		Options: aws.Options{
			Options: install.Options{
				Store: w.keyStore(), Report: w.report, Name: "prod-a", Dir: w.out(), IssuerURL: issuerURL, Dev: true,
				Site: w.site, Policy: keystore.Policy{MaxAge: keystore.DurationPtr(time.Second), RelyingParties: []string{"aws"}},
			},
			Region: "us-east-1", ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Usual: true,
		},
		Roles: w.requests(t, names...),
	}
}

// writes returns how many calls wrote since the last time.
func (w *world) writes() int {
	n := 0
	for _, c := range w.Calls() {
		if c.Write {
			n++
		}
	}
	w.ResetCalls()
	return n
}

// held checks that a text holds others, in this order.
func held(t *testing.T, text string, want ...string) {
	t.Helper()
	rest := text
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("it lacks %q, or has it too early:\n%s", part, text)
		}
		rest = after
	}
}
