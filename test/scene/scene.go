// Package scene is what an installation in a cloud finds around it, for the tests of installations: a store, a server that publishes
// it, a directory for files, and somebody who notes what the installation tells; and random histories of its runs.
package scene

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

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakecloud"
)

// IssuerURL is the issuer's that is installed.
const IssuerURL = "https://oidc.example.com/prod-a"

// Scene is all of it. Its fields may be changed while nobody looks at them.
type Scene struct {
	Dir   string
	Store *keystore.Store
	Site  install.Site // how the server is asked

	mu     sync.Mutex
	events []install.Event
}

// New makes an empty store and has it published until the test ends.
func New(t testing.TB) *Scene {
	t.Helper()
	s := create(t)
	server := httptest.NewTLSServer(http.HandlerFunc(s.Publish)) // its certificate names *.example.com
	t.Cleanup(server.Close)
	s.Site.Connect = server.Listener.Addr().String()
	s.Site.RootCAs.AddCert(server.Certificate())
	return s
}

// NewMemory is New without a network: a test's time (package testing/synctest) passes while clients wait.
func NewMemory(t testing.TB) *Scene {
	t.Helper()
	s := create(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.Publish))
	check(t, server.Listener.Close())
	l := fakecloud.NewMemory()
	server.Listener = l
	server.StartTLS()
	t.Cleanup(server.Close)
	s.Site.Connect = "127.0.0.1:443"
	s.Site.Dial = l.DialContext
	s.Site.RootCAs.AddCert(server.Certificate())
	return s
}

func create(t testing.TB) *Scene {
	t.Helper()
	s := &Scene{Dir: t.TempDir()}
	backend, err := filestore.Create(filepath.Join(s.Dir, "store"))
	check(t, err)
	s.Store, s.Site.RootCAs = keystore.NewStore(backend), x509.NewCertPool()
	return s
}

// Publish answers as a keypostd that reads the store for every request.
func (s *Scene) Publish(w http.ResponseWriter, r *http.Request) {
	name, document, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	set, _, err := s.Store.Load(r.Context(), keystore.Name(name))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	var body []byte
	switch "/" + document {
	case issuer.JWKSPath, issuer.JWKSAliasPath:
		body, err = issuer.RenderJWKS(set)
	default:
		body, err = issuer.RenderDiscovery(set, set.Issuers()[0])
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a failure here is a client that is gone
}

// Options are those of an installation prod-a, whose issuer's relying parties are given.
func (s *Scene) Options(parties ...string) install.Options {
	return install.Options{
		Store: s.KeyStore(), Report: s.Report, Name: "prod-a", Dir: s.Out(), IssuerURL: IssuerURL, Dev: true, Site: s.Site,
		Policy: keystore.Policy{MaxAge: keystore.DurationPtr(time.Second), RelyingParties: parties},
	}
}

// KeyStore opens the store.
func (s *Scene) KeyStore() install.KeyStore {
	open := func(context.Context) (*keystore.Store, error) { return s.Store, nil }
	return install.KeyStore{Name: "the store", Change: func() keystore.Change { return keystore.Change{At: time.Now(), By: "me"} }, Open: open, Create: open}
}

// Report notes an event.
func (s *Scene) Report(e install.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// Reported returns the events since the last time, a line each.
func (s *Scene) Reported() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.events {
		fmt.Fprintf(&b, "%s %s\n", e.Kind, e.Text)
	}
	s.events = nil
	return b.String()
}

// Out is the installation's output directory. It is there once something is in it.
func (s *Scene) Out() string { return filepath.Join(s.Dir, "out") }

// WriteKeys makes a key pair in the output directory that is quicker to make than an installation's own.
func (s *Scene) WriteKeys(t testing.TB) keystore.VerificationKey {
	t.Helper()
	k, err := signingkey.Generate(signingkey.RSA2048)
	check(t, err)
	check(t, os.MkdirAll(s.Out(), 0o700))
	check(t, k.Write(signingkey.Paths{Private: filepath.Join(s.Out(), ccoctl.PrivateKeyName), Public: filepath.Join(s.Out(), ccoctl.PublicKeyName)}))
	return k.Public()
}

// StoreKeys stores a key set of the issuer's with an active key, and another one in a state.
func (s *Scene) StoreKeys(t testing.TB, active, other keystore.VerificationKey, state keystore.State) {
	t.Helper()
	url, err := keystore.ParseIssuerURL(IssuerURL, true)
	check(t, err)
	change := keystore.Change{At: time.Now(), By: "me", Why: "test", Force: true}
	spec := keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{url}, Keys: []keystore.VerificationKey{active}, Dev: true, Policy: s.Options().Policy}
	if state != keystore.Next {
		spec.Keys = append(spec.Keys, other)
	}
	set, err := keystore.New(change, spec)
	check(t, err)
	switch state {
	case keystore.Next:
		set, err = set.Add(change, other)
	case keystore.Retired:
		set, err = set.Retire(change, other.ID(), keystore.Evidence{Statement: "test"})
	case keystore.Active:
	}
	check(t, err)
	check(t, keystore.Create(t.Context(), s.Store, set))
}

// Held fails the test unless a text holds others, in this order.
func Held(t testing.TB, text string, want ...string) {
	t.Helper()
	rest := text
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Fatalf("it does not have %q, or has it too early:\n%s", part, text)
		}
		rest = after
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
