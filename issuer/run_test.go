package issuer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestReadyOnceEverythingIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
		b.put(doc{name: "a", generation: 1}, doc{name: "b", generation: 1})
		defer b.run(t.Context())()
		time.Sleep(10 * time.Minute) // an unreadable store is not a listing, however long it lasts
		if b.Ready() == nil {
			t.Fatal("ready without a listing")
		}
		b.refuses(urlA, http.StatusServiceUnavailable)
		b.store.Inject(nil)
		time.Sleep(tick)
		b.serves(urlA)
		if err := b.Ready(); err != nil {
			t.Fatal(err)
		}
		b.refuses("https://oidc.example.com/c", http.StatusNotFound)

		// It is never withdrawn.
		b.store.Set("a", []byte("junk"))
		b.store.Set("new", []byte("junk"))
		b.store.Delete("b")
		time.Sleep(tick)
		b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
		time.Sleep(time.Hour)
		if err := b.Ready(); err != nil {
			t.Fatalf("readiness was withdrawn: %v", err)
		}
	})
}

func TestUnreadableKeySetHoldsReadinessForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1})
		b.put(doc{name: "b", generation: 1})
		b.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Name == "b" {
				return false, errors.New("permission denied")
			}
			return true, nil
		})
		defer b.run(t.Context())()
		time.Sleep(lastgood.StartPatience - time.Second)
		b.serves(urlA) // what is good is served meanwhile
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "1 of 2") {
			t.Fatalf("Ready() = %v, want what is missing", err)
		}
		time.Sleep(time.Second + tick)
		if err := b.Ready(); err != nil {
			t.Fatalf("not ready after five minutes: %v", err)
		}
		// b may be an issuer that a CDN has a copy of: a 404 would replace it, a 503 does not.
		b.refuses(urlB, http.StatusServiceUnavailable)
		b.store.Inject(nil)
		time.Sleep(tick)
		b.serves(urlB)
		b.refuses("https://oidc.example.com/c", http.StatusNotFound)
	})
}

// A document that no waiting mends holds nobody up: a fresh process is ready at once, whatever one of the others says.
func TestRefusedKeySetHoldsNobodyUp(t *testing.T) {
	whole := string(doc{name: "b", generation: 1}.text(t))
	elsewhere := doc{name: "b", generation: 1, issuers: []string{urlB, "https://oidc.example.com/a"}}
	tombstone := doc{name: "b", generation: 1, issuers: []string{"https://oidc.example.com/a"}, withdrawn: true}
	for reason, text := range map[keystore.Reason]string{
		lastgood.ReasonBroken:          "junk",
		lastgood.ReasonNewerVersion:    strings.ReplaceAll(whole, "keypost.dev/v1", "keypost.dev/v2"),
		lastgood.ReasonURLNotPermitted: string(elsewhere.text(t)),
		lastgood.ReasonGenerationJump:  string(doc{name: "b", generation: keystore.MaxGeneration}.text(t)),
		lastgood.ReasonDev:             string(doc{name: "b", generation: 1, dev: true}.text(t)),
		lastgood.ReasonUnreadable:      whole, // its owner took the right to read it away
		"a tombstone":                  string(tombstone.text(t)),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.put(doc{name: "a", generation: 1})
			b.store.Set("b", []byte(text))
			b.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
				if reason == lastgood.ReasonUnreadable && op.Name == "b" {
					return false, &keystore.UnreadableError{Err: errors.New("permission denied")}
				}
				return true, nil
			})
			defer b.run(t.Context())()
			time.Sleep(time.Second)
			if err := b.Ready(); err != nil {
				t.Errorf("%s: %v", reason, err)
			}
			b.serves(urlA)
			if reason == "a tombstone" {
				reason = lastgood.ReasonURLNotPermitted
			}
			b.rejected("b", reason)
			// b may be an issuer that a CDN has a copy of: a 404 would replace it, a 503 does not.
			b.refuses(urlB, http.StatusServiceUnavailable)
		})
	}
}

// An empty store is one that a mirror has not filled yet, or a volume that is not mounted: no issuer is known not to
// exist, and nobody is to be sent there.
func TestEmptyStoreIsNoAnswer(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBenchWith(t, Config{AllowEmpty: allowed})
			defer b.run(t.Context())()
			time.Sleep(time.Hour)
			if err := b.Ready(); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "allowEmpty") {
				t.Fatalf("allowed: %v; ready: %v", allowed, err)
			}
			b.refuses(urlA, http.StatusServiceUnavailable)
			b.put(doc{name: "a", generation: 1})
			time.Sleep(2 * batchTime)
			if err := b.Ready(); err != nil {
				t.Fatalf("not ready although everything is served: %v", err)
			}
			b.serves(urlA)
			b.refuses(urlB, http.StatusNotFound)
			b.store.Delete("a")
			time.Sleep(tick)
			b.refuses(urlB, http.StatusNotFound)
			if err := b.Ready(); err != nil {
				t.Fatalf("readiness was withdrawn: %v", err)
			}
		})
	}
}

// Key sets that cannot be served, as after a mistake in issuerURLs, are as good as none: a new replica must not
// take the place of one that serves.
func TestNothingThatCanBeServedIsNeverReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.Set("a", []byte("junk"))
		b.put(doc{name: "b", generation: 1, issuers: []string{"https://elsewhere.example.com/b"}})
		defer b.run(t.Context())()
		time.Sleep(time.Hour)
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "2 of 2") {
			t.Fatalf("Ready() = %v", err)
		}
		b.put(doc{name: "c", generation: 1})
		time.Sleep(2 * batchTime)
		if err := b.Ready(); err != nil {
			t.Fatalf("not ready although one is served and five minutes have passed: %v", err)
		}
	})
}

// batchTime is how long a Feed collects what the watch reports.
const batchTime = 100 * time.Millisecond

func TestChangesAreServedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1})
		defer b.run(t.Context())()
		time.Sleep(time.Second)
		before := b.current.Load()
		changes := 0
		for generation := range int64(50) { // a checkout of many files, 1 ms each
			for _, name := range []string{"a", "b", "c"} {
				b.put(doc{name: name, generation: generation + 2, keys: nil})
			}
			time.Sleep(time.Millisecond)
			if s := b.current.Load(); s != before {
				before, changes = s, changes+1
			}
		}
		if changes > 1 {
			t.Fatalf("%d snapshots within 50 ms", changes)
		}
		time.Sleep(batchTime + time.Millisecond)
		for _, s := range b.Report().Issuers {
			if !s.Served || s.Generation != 51 {
				t.Fatalf("%s is served at generation %d, not 51, %v after the change", s.Name, s.Generation, batchTime)
			}
		}
	})
}

// Before everything was listed, a report of one key set must not give it a URL that another one claims too.
func TestWatchBeforeTheFirstListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.store.Inject(failing(storetest.OpList, errors.New("connection refused")))
		defer b.run(t.Context())()
		time.Sleep(time.Second)
		b.put(shared(t, "a", 1, 1))
		time.Sleep(time.Second)
		b.put(shared(t, "b", 1, 2))
		time.Sleep(time.Second)
		b.refuses(urlShared, http.StatusServiceUnavailable)
		b.store.Inject(nil)
		time.Sleep(tick)
		b.refuses(urlShared, http.StatusServiceUnavailable)
		b.rejected("a", lastgood.ReasonURLConflict)
		b.rejected("b", lastgood.ReasonURLConflict)
	})
}

// Readers see whole versions only, whatever is published meanwhile.
func TestConcurrentReadersSeeWholeVersions(t *testing.T) {
	b := newBench(t)
	generation := func(g int64) doc { // every version has one key, whose number is the generation
		d := doc{name: "a", generation: g, issuers: []string{urlA, "https://a.oidc.example.com"}, keys: []keystore.VerificationKey{key(t, g)}}
		for old := range g - 1 {
			d.gone = append(d.gone, key(t, old+1))
		}
		return d
	}
	bodies := map[string]int{} // JWKS to generation
	const versions = 25
	for g := range int64(versions) {
		body, err := RenderJWKS(generation(g + 1).parse(t))
		if err != nil {
			t.Fatal(err)
		}
		bodies[string(body)] = int(g + 1)
	}
	b.put(generation(1))
	b.poll()
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for last := 0; ; {
				select {
				case <-done:
					return
				default:
				}
				status, body := b.get(urlA)
				g := bodies[body]
				if status != http.StatusOK || g < last || g == 0 {
					t.Errorf("status %d, generation %d after %d: %.80q", status, g, last, body)
					return
				}
				last = g
			}
		})
	}
	for g := int64(2); g <= versions; g++ {
		b.put(generation(g), doc{name: fmt.Sprintf("n%d", g), generation: 1})
		b.poll()
		b.Report()
	}
	close(done)
	readers.Wait()
}
