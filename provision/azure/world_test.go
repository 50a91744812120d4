package azure_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/signingkey"
	"github.com/keypost/keypost/test/fakeazure"
)

const (
	issuerURL    = "https://oidc.example.com/prod-a"
	subscription = "11111111-2222-3333-4444-555555555555"
	tenant       = "99999999-8888-7777-6666-555555555555"
)

// world is all that an installation needs: a subscription, a store that is served, an output directory.
type world struct {
	*fakeazure.Server
	dir   string
	store *keystore.Store
	site  install.Site

	mu     sync.Mutex
	events []install.Event
}

func newWorld(t *testing.T, o fakeazure.Options) *world {
	t.Helper()
	w := &world{dir: t.TempDir()}
	backend, err := filestore.Create(filepath.Join(w.dir, "store"))
	must(t, err)
	w.store = keystore.NewStore(backend)
	server := httptest.NewTLSServer(http.HandlerFunc(w.serve)) // its certificate names *.example.com
	t.Cleanup(server.Close)
	w.site.RootCAs, w.site.Connect = x509.NewCertPool(), server.Listener.Addr().String()
	w.site.RootCAs.AddCert(server.Certificate())
	o.Roots, o.Dial = w.site.RootCAs, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, w.site.Connect)
	}
	w.Server = fakeazure.Start(t, o)
	for _, v := range w.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
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

func (w *world) out() string { return filepath.Join(w.dir, "out") }

// writeKeys makes a key pair that is quicker to make than Create's own.
func (w *world) writeKeys(t *testing.T) {
	t.Helper()
	k, err := signingkey.Generate(signingkey.RSA2048)
	must(t, err)
	must(t, os.MkdirAll(w.out(), 0o700))
	must(t, k.Write(signingkey.Paths{Private: filepath.Join(w.out(), ccoctl.PrivateKeyName), Public: filepath.Join(w.out(), ccoctl.PublicKeyName)}))
}

// request is a CredentialsRequest.
type request struct {
	name     string // in the cluster; openshift-ingress-azure and some others mean something
	accounts string
	provider string // what the provider's spec holds beside its kind
}

// requests writes a directory of CredentialsRequests.
func (w *world) requests(t *testing.T, list ...request) azure.RequestedIdentities {
	t.Helper()
	dir := filepath.Join(w.dir, "requests")
	must(t, os.RemoveAll(dir))
	must(t, os.MkdirAll(dir, 0o700))
	for _, q := range list {
		text := fmt.Sprintf(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: %[1]s, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: creds, namespace: ns-%[1]s}
  serviceAccountNames: [%[2]s]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, kind: AzureProviderSpec, %[3]s}
`, q.name, q.accounts, q.provider)
		must(t, os.WriteFile(filepath.Join(dir, q.name+".yaml"), []byte(text), 0o600))
	}
	return azure.RequestedIdentities{Dir: dir}
}

// usual are requests with all that one can ask for.
func usual() []request {
	return []request{
		{"openshift-ingress-azure", "ingress-operator", "permissions: [Microsoft.Network/dnsZones/A/write, Microsoft.Network/dnszones/a/WRITE]"},
		{"storage", "op, controller.sa, x", "permissions: [Microsoft.Compute/disks/read], dataPermissions: [Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read]"},
		{"registry", "registry", "roleBindings: [{role: Contributor}]"},
	}
}

func (w *world) options() azure.Options {
	return azure.Options{
		Options: install.Options{
			Store: install.KeyStore{
				Name: "the store", Change: func() keystore.Change { return keystore.Change{At: time.Now(), By: "me"} },
				Open: w.open, Create: w.open,
			},
			Report: w.report, Name: "prod-a", Dir: w.out(), IssuerURL: issuerURL, Dev: true,
			Site: w.site, Policy: keystore.Policy{MaxAge: keystore.DurationPtr(time.Second), RelyingParties: []string{"entra"}},
		},
		Endpoint:     azure.Endpoint{Transport: w.Client(), Unpaced: true},
		Subscription: subscription, Tenant: tenant, Region: "centralus", OIDCGroup: "prod-a-oidc", InstallGroup: "prod-a", Audience: azure.DefaultAudience,
	}
}

func (w *world) open(context.Context) (*keystore.Store, error) { return w.store, nil }

func (w *world) create(t *testing.T, list ...request) azure.CreateOptions {
	t.Helper()
	requests := w.requests(t, list...)
	return azure.CreateOptions{Options: w.options(), Identities: &requests}
}

func (w *world) identities(t *testing.T, list ...request) azure.IdentitiesOptions {
	t.Helper()
	return azure.IdentitiesOptions{Options: w.options(), Identities: w.requests(t, list...)}
}

// writes returns the calls that wrote since the last time.
func (w *world) writes() []string {
	var list []string
	for _, c := range w.Calls() {
		if c.Write {
			list = append(list, c.Action+" "+c.Path+" "+c.Code)
		}
	}
	w.ResetCalls()
	return list
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

// is reports whether an error has a problem.
func is(p azure.Problem) func(error) bool {
	return func(err error) bool {
		e, is := errors.AsType[*azure.Error](err)
		return is && e.Problem == p
	}
}
