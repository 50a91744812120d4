package aws_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/scene"
)

// spread serves the issuer at the addresses of its host and of others, a server each. Nil is the world's own.
func (w *world) spread(t *testing.T, at map[string]http.HandlerFunc) {
	t.Helper()
	servers := map[string]string{}
	for ip, h := range at {
		if h == nil {
			h = w.Publish
		}
		server := httptest.NewTLSServer(h)
		t.Cleanup(server.Close)
		servers[net.JoinHostPort(ip, "443")] = server.Listener.Addr().String()
		w.Site.RootCAs.AddCert(server.Certificate())
	}
	w.Site.Connect = ""
	w.Site.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		var all []netip.Addr
		for ip := range at {
			if a := netip.MustParseAddr(ip); a.IsLoopback() == (host == "oidc.example.com") {
				all = append(all, a)
			}
		}
		return all, nil
	}
	w.Site.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, servers[address])
	}
}

// createUntil creates an installation until it reports a text, and returns what it reported.
func (w *world) createUntil(t *testing.T, o aws.CreateOptions, text string) (string, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Report = func(e install.Event) {
		if w.Report(e); strings.Contains(e.Text, text) {
			stop()
		}
	}
	_, err := aws.Create(ctx, o)
	return w.Reported(), err
}

const waits = "for answers from before to run out"

// A run is stopped while nobody serves the store, and is made again when somebody does: that the key lay in the store for long
// says nothing about caches, and the wait is whole. Once the provider is there nothing is waited for, but for a key that is
// younger than the provider, and behind a provider that something else made.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	var behind atomic.Bool // what serves the store has not read it
	behind.Store(true)
	w.spread(t, map[string]http.HandlerFunc{"127.0.0.1": func(rw http.ResponseWriter, r *http.Request) {
		if behind.Load() {
			http.NotFound(rw, r)
			return
		}
		w.Publish(rw, r)
	}})
	o := w.create(t, "a")
	o.Site = w.Site
	o.Store.Change = func() keystore.Change { return keystore.Change{At: time.Now().Add(-time.Hour), By: "me"} }
	if text, err := w.createUntil(t, o, "answers 404"); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; nobody serves it:\n%s", err, text)
	}
	behind.Store(false)
	if text, err := w.createUntil(t, o, waits); !errors.Is(err, context.Canceled) || w.writes() > 0 {
		t.Fatalf("%v; want a wait, and no call that writes:\n%s", err, text)
	}
	made, err := aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), waits, "is served with key", "Made for prod-a")
	again := w.create(t, "a", "b") // a later release has another role
	again.Site = w.Site
	_, err = aws.Create(t.Context(), again)
	must(t, err)
	if text := w.Reported(); strings.Contains(text, "to run out") || !strings.Contains(text, "Made for prod-a") {
		t.Errorf("the provider is there, and it waits:\n%s", text)
	}
	w.Disown(made.ProviderARN)
	again.Name, again.Adopt = "prod-b", true // to which the provider does not belong
	again.Dir = o.Dir
	_, err = aws.Create(t.Context(), again)
	must(t, err)
	scene.Held(t, w.Reported(), waits, "Made for prod-b")
}

// The provider was there before the key: relying parties may have been told of another.
func TestCreateWithAnOlderProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.WriteKeys(t)
	o := w.create(t, "a")
	_, err := aws.Create(t.Context(), o)
	must(t, err)
	w.Reported()
	backend, err := filestore.Create(t.TempDir())
	must(t, err)
	w.Store = keystore.NewStore(backend) // it is published anew
	o.Store = w.KeyStore()
	o.Store.Change = func() keystore.Change { return keystore.Change{At: time.Now().Add(time.Second), By: "me"} }
	_, err = aws.Create(t.Context(), o)
	must(t, err)
	scene.Held(t, w.Reported(), "Key set prod-a stored", waits, "Made for prod-a")
}
