package issuer

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

// stuck is a fault with which operations do not end before they are let go, whatever their context says, as a system
// call on a mount whose server is gone, or a document that is expensive to understand.
type stuck struct {
	which func(storetest.Op) bool
	free  chan struct{}

	mu    sync.Mutex
	calls []keystore.Name
}

func (b *bench) stick(which func(storetest.Op) bool) *stuck {
	s := &stuck{which: which, free: make(chan struct{})}
	b.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if s.which(op) {
			s.mu.Lock()
			s.calls = append(s.calls, op.Name)
			s.mu.Unlock()
			<-s.free
		}
		return true, nil
	})
	return s
}

func (s *stuck) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func loading(names ...keystore.Name) func(storetest.Op) bool {
	return func(op storetest.Op) bool { return op.Kind == storetest.OpGet && slices.Contains(names, op.Name) }
}

func listing(op storetest.Op) bool { return op.Kind == storetest.OpList }

// A key set whose reading does not end holds up nobody else: others change, it is told of, it is not read again and
// again, and once its reading ends it is served as it is then.
func TestOneKeySetHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}}, doc{name: "b", generation: 1, keys: []keystore.VerificationKey{key(t, 2)}})
		stop := b.run(t.Context())
		time.Sleep(time.Second)
		b.said()
		hang := b.stick(loading("a"))
		b.put(doc{name: "a", generation: 2, keys: []keystore.VerificationKey{key(t, 1), key(t, 3)}})
		b.put(doc{name: "b", generation: 2, gone: []keystore.VerificationKey{key(t, 2)}}) // in the same batch
		time.Sleep(batchTime + 2*stall)
		b.serves(urlB)
		b.saidOnce("info key set published b")

		time.Sleep(patience)
		b.rejected("a", lastgood.ReasonUnreadable)
		b.saidOnce("warn key set rejected; its last good version, if any, stays served a unreadable")
		for generation := range int64(100) {
			b.put(doc{name: "b", generation: 3 + generation, gone: []keystore.VerificationKey{key(t, 2)}})
			time.Sleep(batchTime + time.Millisecond)
			if is := b.Report().Issuers[1].Generation; is != 3+generation {
				t.Fatalf("b is served at generation %d, not %d, %v after the change", is, 3+generation, batchTime)
			}
		}
		b.put(doc{name: "a", generation: 3, keys: []keystore.VerificationKey{key(t, 1), key(t, 3)}})
		time.Sleep(time.Hour)
		b.serves(urlA, key(t, 1))
		if err := b.Ready(); err != nil {
			t.Errorf("unready: %v", err)
		}
		if n := hang.count(); n != 1 {
			t.Errorf("%d readings hang, want one", n)
		}
		if age := time.Since(b.Report().Complete); age > 2*defaultPoll {
			t.Errorf("the last complete reading was %v ago", age)
		}
		b.said()

		b.store.Inject(nil)
		close(hang.free)
		synctest.Wait()
		b.serves(urlA, key(t, 1), key(t, 3))
		b.rejected("a", "")
		b.saidOnce("info key set published a")
		stop()
	})
}

// slowSource gives the version of the moment at which a reading began, long after.
type slowSource struct {
	*storetest.MemStore
	free chan struct{}
}

func (s slowSource) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	set, rev, err := s.MemStore.Load(ctx, n)
	<-s.free
	return set, rev, err
}

// What changed during a slow reading is read at its end, not at the next poll.
func TestChangeDuringASlowReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slowSource{storetest.NewMemStore(t), make(chan struct{})}
		b := newBenchWith(t, Config{Source: source})
		b.store = source.MemStore
		b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}})
		stop := b.run(t.Context())
		time.Sleep(patience + time.Second)
		b.put(doc{name: "a", generation: 2, gone: []keystore.VerificationKey{key(t, 1)}})
		time.Sleep(batchTime + time.Millisecond)
		close(source.free)
		synctest.Wait()
		b.serves(urlA)
		stop()
	})
}

// A fresh process serves the others at once, and waits for the one that hangs as for any that cannot be served.
func TestOneKeySetHangsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1}, doc{name: "b", generation: 1})
		hang := b.stick(loading("a"))
		stop := b.run(t.Context())
		time.Sleep(patience + time.Millisecond)
		b.serves(urlB)
		b.refuses(urlA, http.StatusServiceUnavailable)
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "1 of 2") {
			t.Errorf("Ready() = %v", err)
		}
		time.Sleep(lastgood.StartPatience + tick)
		if err := b.Ready(); err != nil {
			t.Errorf("not ready after five minutes: %v", err)
		}
		stop() // does not wait for it
		close(hang.free)
	})
}

// Who claims a URL is not known while one who may claim it cannot be read: the first to be read must not get it.
func TestURLIsNotGivenWhileARivalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(shared(t, "a", 1, 1), shared(t, "b", 1, 2), doc{name: "d", generation: 1})
		hang := b.stick(loading("a"))
		defer b.run(t.Context())()
		time.Sleep(tick)
		b.rejected("b", lastgood.ReasonURLConflict)
		b.refuses(urlShared, http.StatusServiceUnavailable)
		b.serves("https://oidc.example.com/d")
		b.store.Inject(nil)
		close(hang.free)
		time.Sleep(tick)
		b.rejected("a", lastgood.ReasonURLConflict)
		b.rejected("b", lastgood.ReasonURLConflict)

		b.store.Delete("a")
		time.Sleep(2 * batchTime)
		b.serves(urlShared, key(t, 2))
	})
}

// A listing that hangs holds up no change that the watch reports, and none is begun beside it.
func TestListingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1})
		b.put(shared(t, "b", 1, 1), shared(t, "c", 1, 2)) // a conflict, for which everything would be listed
		stop := b.run(t.Context())
		time.Sleep(time.Second)
		hang := b.stick(listing)
		time.Sleep(defaultPoll + listPatience)
		for generation := range int64(50) {
			b.put(doc{name: "a", generation: 2 + generation})
			time.Sleep(batchTime + time.Millisecond)
			if is := b.Report().Issuers[0].Generation; is != 2+generation {
				t.Fatalf("generation %d is served, not %d", is, 2+generation)
			}
		}
		b.put(shared(t, "b", 2, 1))
		time.Sleep(time.Hour)
		b.rejected("b", lastgood.ReasonURLConflict)
		b.refuses(urlShared, http.StatusServiceUnavailable)
		if n := hang.count(); n != 1 {
			t.Errorf("%d listings hang, want one", n)
		}
		const failing = "keypost_key_sets_read_failing"
		if err := testutil.CollectAndCompare(b.Publisher, strings.NewReader("# HELP "+failing+" 1 while the store cannot be listed.\n# TYPE "+failing+" gauge\n"+failing+" 1\n"), failing); err != nil {
			t.Error(err)
		}
		b.store.Inject(nil)
		close(hang.free)
		time.Sleep(tick)
		if age := time.Since(b.Report().Complete); age > tick {
			t.Errorf("the last complete reading was %v ago", age)
		}
		stop()
	})
}

// Readings that do not end are bounded.
func TestEverythingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 4 * maxSlow {
			b.put(doc{name: fmt.Sprintf("n%d", i), generation: 1})
		}
		hang := b.stick(func(op storetest.Op) bool { return op.Kind == storetest.OpGet })
		stop := b.run(t.Context())
		time.Sleep(time.Hour)
		if n := hang.count(); n < maxSlow || n > maxSlow+runtime.GOMAXPROCS(0)+2 { // a few may have begun at once
			t.Errorf("%d readings hang, want %d", n, maxSlow)
		}
		b.store.Inject(nil)
		close(hang.free)
		time.Sleep(tick)
		if err := b.Ready(); err != nil {
			t.Errorf("after the trouble: %v", err)
		}
		r := &b.readings
		r.mu.Lock()
		if r.slowing != 0 || len(r.under) != 0 || len(r.wanted) != 0 {
			t.Errorf("after the trouble %d readings are slow, %d under way, %d wanted", r.slowing, len(r.under), len(r.wanted))
		}
		r.mu.Unlock()
		stop()
	})
}

// Whoever asks for the state never waits for a batch that is being judged, nor for a log that nobody reads.
func TestStateWaitsForNobody(t *testing.T) {
	ask := func(b *bench) {
		_ = b.Ready()
		if n := len(b.Report().Issuers); n != 1 {
			t.Errorf("%d key sets are reported", n)
		}
		metrics := make(chan prometheus.Metric, 100)
		b.Collect(metrics)
		b.serves(urlA)
	}
	b := newBench(t)
	b.put(doc{name: "a", generation: 1})
	b.poll()
	b.turn.Lock()
	ask(b)
	b.turn.Unlock()

	asked := make(chan struct{})
	b.c.Log = zap.New(zapcore.RegisterHooks(zapcore.NewNopCore(), func(zapcore.Entry) error { return nil }), zap.WrapCore(func(zapcore.Core) zapcore.Core {
		return blocked{zapcore.NewNopCore(), func() { ask(b); close(asked) }}
	}))
	b.store.Set("a", []byte("junk"))
	b.poll()
	<-asked
}

// blocked is a log that does something else while its caller waits.
type blocked struct {
	zapcore.Core
	meanwhile func()
}

func (c blocked) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return checked.AddCore(e, c)
}

func (c blocked) Enabled(zapcore.Level) bool { return true }

func (c blocked) Write(zapcore.Entry, []zapcore.Field) error {
	c.meanwhile()
	return nil
}

// A version is judged while it is read. If another one is served by then, it is judged again.
func TestJudgedAgainstWhatIsServed(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}})
	b.poll()
	b.put(doc{name: "a", generation: 2, keys: []keystore.VerificationKey{key(t, 1)}})
	slow := b.readNow(t.Context(), "a")
	b.put(doc{name: "a", generation: 3, keys: []keystore.VerificationKey{key(t, 1), key(t, 2)}})
	b.poll()
	b.publish([]found{slow}, nil) // as one of a batch that was slower than a later one
	b.serves(urlA, key(t, 1), key(t, 2))
	b.rejected("a", "")
	slow.at = b.readings.next() // as a reading that ended after that
	b.publish([]found{slow}, nil)
	b.serves(urlA, key(t, 1), key(t, 2))
	b.rejected("a", lastgood.ReasonOlderGeneration)
}

// slowly makes each reading take as long as d says.
func (b *bench) slowly(d func(keystore.Name) time.Duration) {
	b.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == storetest.OpGet {
			time.Sleep(d(op.Name))
		}
		return true, nil
	})
}

// Of two key sets with one URL none gets it at a start, however long either takes to read: the one that is read first must
// not win. The same holds for a key that left with a tombstone, and the key set that brings it back.
func TestSlowReadingsAtAStartDecideNothing(t *testing.T) {
	all := func(d time.Duration) func(keystore.Name) time.Duration {
		return func(keystore.Name) time.Duration { return d }
	}
	for name, speed := range map[string]func(keystore.Name) time.Duration{
		"all are slow": all(2500 * time.Millisecond),
		"one is slow": func(n keystore.Name) time.Duration {
			if n == "b" {
				return 2100 * time.Millisecond
			}
			return 600 * time.Millisecond
		},
	} {
		for range 10 { // they are read in any order
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for i := range 30 {
					b.put(doc{name: fmt.Sprintf("n%d", i), generation: 1})
				}
				b.put(shared(t, "a", 1, 1), shared(t, "b", 1, 2))
				b.slowly(speed)
				stop := b.run(t.Context())
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					if status, _ := b.get(urlShared); status == http.StatusOK {
						t.Fatalf("%s: the URL is served", name)
					}
				}
				stop()
				time.Sleep(time.Minute) // readings that nobody waits for
			})
		}
	}
}

// Of two newcomers that arrive together none gets the URL, however long either takes to read.
func TestNewcomersTogetherWithASlowOne(t *testing.T) {
	for _, slow := range []time.Duration{0, 200 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.put(doc{name: "n", generation: 1})
			stop := b.run(t.Context())
			time.Sleep(time.Second)
			b.slowly(func(n keystore.Name) time.Duration {
				if n == "a" {
					return slow
				}
				return 0
			})
			b.put(shared(t, "a", 1, 1), shared(t, "b", 1, 2))
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				if status, _ := b.get(urlShared); status == http.StatusOK {
					t.Fatalf("one that took %v: the URL is served", slow)
				}
			}
			stop()
			time.Sleep(time.Minute)
		})
	}
}

// What changed while a key set was read again after a slow reading is read at the end of that, not at the next poll.
func TestChangeDuringTheSecondReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := []time.Duration{3 * time.Second, 1900 * time.Millisecond}
		source := &delayedSource{MemStore: storetest.NewMemStore(t)}
		b := newBenchWith(t, Config{Source: source, Poll: time.Hour})
		b.store = source.MemStore
		put := func(generation int64) {
			b.put(doc{name: "a", generation: generation, keys: []keystore.VerificationKey{key(t, 1)}})
		}
		put(1)
		stop := b.run(t.Context())
		time.Sleep(time.Second)
		source.set(delays)
		put(2)
		time.Sleep(2500 * time.Millisecond)
		put(3) // during the slow reading
		time.Sleep(1500 * time.Millisecond)
		b.put(doc{name: "a", generation: 4, gone: []keystore.VerificationKey{key(t, 1)}}) // during the second one
		time.Sleep(3 * time.Second)
		if g := b.Report().Issuers[0].Generation; g != 4 {
			t.Errorf("generation %d is served; want 4, a revocation, without waiting for the poll", g)
		}
		stop()
	})
}

// delayedSource gives the version of the moment at which a reading began, after a delay.
type delayedSource struct {
	*storetest.MemStore
	mu     sync.Mutex
	delays []time.Duration // of the readings to come
}

func (s *delayedSource) set(delays []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delays = delays
}

func (s *delayedSource) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	set, rev, err := s.MemStore.Load(ctx, n)
	s.mu.Lock()
	var delay time.Duration
	if len(s.delays) > 0 {
		delay, s.delays = s.delays[0], s.delays[1:]
	}
	s.mu.Unlock()
	time.Sleep(delay)
	return set, rev, err
}

// That a reading took long is not reported any more once it has ended well, although others of its batch still are read.
func TestASlowReadingThatEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for i := range 40 {
			b.put(doc{name: fmt.Sprintf("n%d", i), generation: 1})
		}
		stop := b.run(t.Context())
		time.Sleep(time.Second)
		b.slowly(func(n keystore.Name) time.Duration {
			if n == "n0" {
				return 2050 * time.Millisecond
			}
			return 240 * time.Millisecond
		})
		for i := range 40 {
			b.put(doc{name: fmt.Sprintf("n%d", i), generation: 2})
		}
		for range 600 {
			time.Sleep(10 * time.Millisecond)
			if is := b.Report().Issuers[0]; is.Name == "n0" && is.Generation == 2 && is.Rejected != "" {
				t.Fatalf("n0 is served at generation 2 and rejected: %s", is.Rejected)
			}
		}
		stop()
		time.Sleep(time.Minute)
	})
}
