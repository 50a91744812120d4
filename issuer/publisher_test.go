package issuer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

const (
	urlA      = "https://oidc.example.com/a"
	urlB      = "https://oidc.example.com/b"
	urlShared = "https://shared.example.com"
)

// The version that is served, coming back after an accident, is news too.
func TestReturnOfTheServedVersion(t *testing.T) {
	good := doc{name: "a", generation: 5, keys: []keystore.VerificationKey{key(t, 1)}}
	for name, accident := range map[string]func(*bench){
		"missing":  func(b *bench) { b.store.Delete("a") },
		"broken":   func(b *bench) { b.store.Set("a", []byte("junk")) },
		"restored": func(b *bench) { d := good; d.generation = 4; b.put(d) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.put(good)
			b.poll()
			accident(b)
			b.poll()
			b.said()
			b.put(good)
			b.poll()
			b.rejected("a", "")
			b.saidOnce("info key set is as it is served again a")
			b.poll()
			b.silent()
		})
	}
}

func TestListErrorChangesNothing(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}})
	b.poll()
	b.said()
	b.store.Delete("a")
	b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
	for i := range 3 {
		if err := b.Refresh(t.Context()); err == nil {
			t.Fatal("Refresh hides that the listing failed")
		}
		b.serves(urlA, key(t, 1))
		b.rejected("a", "") // nobody knows that it is missing
		if i == 0 {
			b.saidOnce("warn key sets cannot be listed")
		}
	}
	b.silent()
	b.store.Inject(nil)
	b.poll()
	b.rejected("a", lastgood.ReasonMissing)
	if lines := b.said(); len(lines) != 2 || !strings.Contains(lines[0], "can be listed again") {
		t.Fatalf("logged %q", lines)
	}
}

// A stop is not the store's fault, and a reading that it cut short says nothing about key sets.
func TestCancelledRefreshConcludesNothing(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}}, doc{name: "b", generation: 1, keys: []keystore.VerificationKey{key(t, 2)}})
	b.poll()
	b.put(doc{name: "a", generation: 2, keys: []keystore.VerificationKey{key(t, 1)}})
	b.said()
	for _, at := range []string{storetest.OpList, storetest.OpGet} {
		ctx, cancel := context.WithCancel(t.Context())
		b.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind == at {
				cancel()
				return false, ctx.Err()
			}
			return true, nil
		})
		if err := b.Refresh(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled in %s: Refresh returned %v", at, err)
		}
		b.silent()
		b.rejected("a", "")
	}
}

func TestTombstoneEndsAnIssuer(t *testing.T) {
	b := newBench(t)
	first := doc{name: "a", generation: 1, issuers: []string{urlA, "https://a.oidc.example.com"}, keys: []keystore.VerificationKey{key(t, 1)}}
	tombstone := doc{name: "a", generation: 2, issuers: first.issuers, keys: first.keys, withdrawn: true}
	b.put(first, doc{name: "b", generation: 1, keys: []keystore.VerificationKey{key(t, 2)}})
	b.poll()
	b.said()
	b.put(tombstone)
	b.poll()
	for _, u := range first.issuers {
		b.refuses(u, http.StatusNotFound)
	}
	b.serves(urlB, key(t, 2))
	b.saidOnce("info key set withdrawn a")

	// A restored backup does not undo it, and its disappearance is not an alarm.
	b.put(first)
	b.poll()
	b.refuses(urlA, http.StatusNotFound)
	b.rejected("a", lastgood.ReasonOlderGeneration)
	b.store.Delete("a")
	b.poll()
	b.rejected("a", "")
	b.said()
	b.poll()
	b.silent()

	// The URL given out again, with another key and the old one gone.
	b.put(doc{name: "a", generation: 3, keys: []keystore.VerificationKey{key(t, 3)}, gone: []keystore.VerificationKey{key(t, 1)}})
	b.poll()
	b.serves(urlA, key(t, 3))
}

// A revoked key leaves, and the empty JWKS is served, not 404: only a 200 evicts caches.
func TestKeyGoesByItsLineInGone(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}})
	b.poll()
	b.put(doc{name: "a", generation: 2, gone: []keystore.VerificationKey{key(t, 1)}})
	b.poll()
	if status, body := b.get(urlA); status != http.StatusOK || body != `{"keys":[]}` {
		t.Fatalf("status %d, body %q", status, body)
	}
}

func TestDevelopmentKeySetsNeedDevelopmentMode(t *testing.T) {
	b := newBenchWith(t, Config{Dev: true})
	b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}, dev: true})
	b.poll()
	b.serves(urlA, key(t, 1))
}

func TestCacheLifetimesOfThePolicy(t *testing.T) {
	b := newBenchWith(t, Config{Cache: keystore.Cache{MaxAge: 90e9, StaleWhileRevalidate: 60e9, StaleIfError: 3600e9}})
	b.put(
		doc{name: "a", generation: 1, policy: map[string]any{"maxAge": "2m", "staleIfError": "0s"}},
		doc{name: "b", generation: 1})
	b.poll()
	for path, want := range map[string]string{
		"/a": "public, max-age=120, stale-while-revalidate=60, stale-if-error=0",
		"/b": "public, max-age=90, stale-while-revalidate=60, stale-if-error=3600",
	} {
		d, _, _ := b.current.Load().find("oidc.example.com", path)
		if got := d.cacheControl[0]; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
