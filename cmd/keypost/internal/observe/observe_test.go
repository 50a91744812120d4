package observe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

// An origin that takes connections and never answers delays no other issuer's record.
func TestASlowOriginDelaysNoRecord(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	b, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := Observer{Records: observation.NewStore(b), network: fetch.Network{
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "slow.example.com" {
				return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "127.0.0.2:443" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}}
	set := func(n keystore.Name, url string) keystore.KeySet {
		s, err := keystore.New(keystore.Change{At: time.Now()}, keystore.Spec{Name: n, Issuers: storetest.URLs(t, url), Keys: []keystore.VerificationKey{storetest.Key(t)}, Dev: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	slow, fast := set("slow", "https://slow.example.com"), set("fast", "https://fast.example.com")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []Result, 1)
	go func() { done <- o.All(ctx, slow, fast) }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := o.Records.Load(t.Context(), "fast", observation.Subject{Issuer: "https://fast.example.com"}); err == nil {
			break
		} else if !errors.Is(err, keystore.ErrNotFound) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	select {
	case <-done:
		t.Error("it did not wait for the slow one")
	default:
	}
	cancel()
	results := <-done
	if r := results[0]; r.Set.Name() != "slow" || r.Err == nil || len(r.Missing()) == 0 {
		t.Errorf("the slow one: %+v", r)
	}
	r := results[1]
	if errors.Is(r.Err, context.Canceled) { // between the write, which was seen, and its end
		return
	}
	if r.Set.Name() != "fast" || r.Err != nil || r.Record.Latest.Start.IsZero() || len(r.Missing()) == 0 {
		t.Errorf("the fast one, whose certificate nobody trusts: %+v", r)
	}
}
