package watch

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	testca "github.com/keypost/keypost/test/authority"
)

// One of three replicas, each a server of its own, publishes a stranger's key: it is known within one interval, and it is
// over once that replica publishes what is stored.
func TestOneReplicaOfThreeIsRogue(t *testing.T) {
	const url = "https://oidc.example.com:8443/prod-a"
	ours, stranger := storetest.Key(t), storetest.Key(t)
	u, err := keystore.ParseIssuerURL(url, true)
	check(t, err)
	set, err := keystore.New(keystore.Change{At: time.Now().Add(-30 * 24 * time.Hour)}, keystore.Spec{
		Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{ours}, Dev: true,
		Policy: keystore.Policy{RelyingParties: []string{"vault"}},
	})
	check(t, err)
	store := storetest.NewMemStore(t)
	check(t, keystore.Create(t.Context(), store.Store, set))

	var rogue atomic.Bool
	ca, dir := testca.New(t), t.TempDir()
	ca.Issue(t, dir, "oidc.example.com")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	check(t, err)
	servers := map[string]string{}
	for n := range 3 {
		keys := func() []keystore.VerificationKey {
			if n == 2 && rogue.Load() {
				return []keystore.VerificationKey{ours, stranger}
			}
			return []keystore.VerificationKey{ours}
		}
		servers[fmt.Sprintf("192.0.2.%d:8443", n+1)] = serveIssuer(t, certificate, url, keys)
	}
	w := New(Config{Store: store, Every: time.Second, Log: zap.NewNop(), Network: fetch.Network{
		RootCAs: ca.Pool(),
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}, nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, servers[address])
		},
	}})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(ended); w.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	// until waits for a look that began after now and shows what is wanted.
	until := func(want []string) {
		t.Helper()
		began := time.Now()
		var s Status
		for end := began.Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if all := w.Report().Issuers; len(all) == 1 {
				s = all[0]
			}
			if s.Looked.Sub(began) > 2*time.Second && slices.Equal(s.Conditions[RogueKey].At, want) {
				return
			}
		}
		t.Fatalf("rogue at %q, want %q: %+v", s.Conditions[RogueKey].At, want, s)
	}
	until(nil)
	rogue.Store(true)
	until([]string{"192.0.2.3:8443"})
	rogue.Store(false)
	until(nil)
	if s := w.Report().Issuers[0]; len(s.Conditions) > 0 || s.Complete.IsZero() || s.NotAfter.IsZero() {
		t.Errorf("in the end: %+v", s)
	}
}

// serveIssuer serves the documents of an issuer with the keys of each moment, and returns its address.
func serveIssuer(t *testing.T, certificate tls.Certificate, url string, keys func() []keystore.VerificationKey) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/prod-a/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"issuer": url, "jwks_uri": url + "/keys.json", "response_types_supported": []string{"id_token"},
				"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
			})
		case "/prod-a/keys.json", "/prod-a/openid/v1/jwks":
			var set jose.JSONWebKeySet
			for _, k := range keys() {
				set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Key(), KeyID: string(k.ID()), Algorithm: k.Alg(), Use: "sig"})
			}
			_ = json.NewEncoder(w).Encode(set)
		default:
			http.NotFound(w, r)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
