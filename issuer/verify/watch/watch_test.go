package watch

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

// scene is a Watcher of a store in memory whose looks are the test's.
type scene struct {
	*Watcher
	store *storetest.MemStore
	log   bytes.Buffer

	mu    sync.Mutex
	looks map[string][]time.Time                                      // by URL, when each began
	sees  func(ctx context.Context, url string) (verify.Sight, error) // nil: all is well
}

func newScene(t *testing.T, names ...string) *scene {
	t.Helper()
	sc := &scene{store: storetest.NewMemStore(t), looks: map[string][]time.Time{}}
	for _, n := range names {
		sc.add(t, n)
	}
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.Lock(zapcore.AddSync(&sc.log)), zapcore.InfoLevel))
	sc.Watcher = New(Config{Store: sc.store, Every: time.Minute, Log: log})
	sc.look = func(ctx context.Context, target verify.Target, stored func(context.Context) (keystore.KeySet, error)) (verify.Sight, error) {
		url := target.URL.String()
		sc.mu.Lock()
		sc.looks[url] = append(sc.looks[url], time.Now())
		sees := sc.sees
		sc.mu.Unlock()
		s := verify.Sight{Look: observation.Look{Answers: 16, Start: time.Now()}}
		var err error
		if sees != nil {
			s, err = sees(ctx, url)
		} else {
			err = sleep(ctx, 11*time.Second)
		}
		if err != nil {
			return verify.Sight{}, err
		}
		s.Look.End = time.Now()
		if _, err := stored(ctx); err != nil && ctx.Err() == nil {
			s.NotCompared = err.Error()
		}
		return s, context.Cause(ctx)
	}
	return sc
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (sc *scene) add(t *testing.T, name string) {
	t.Helper()
	check(t, keystore.Create(t.Context(), sc.store.Store, storetest.KeySet(t, keystore.Name(name))))
}

func url(name string) string { return "https://oidc.example.com/" + name }

// run watches for some time and returns what is known then. The watcher ends with the test.
func (sc *scene) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); sc.Run(ctx) }()
	t.Cleanup(func() {
		began := time.Now()
		cancel()
		<-ended
		if took := time.Since(began); took > 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

func (sc *scene) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (sc *scene) count(name string) int {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return len(sc.looks[url(name)])
}

// of returns the status of an issuer, and whether it is watched.
func (sc *scene) of(name string) (Status, bool) {
	for _, s := range sc.Report().Issuers {
		if s.URL == url(name) {
			return s, true
		}
	}
	return Status{}, false
}

func (sc *scene) conditions(name string) []Condition {
	s, _ := sc.of(name)
	var all []Condition
	for _, c := range Conditions() {
		if _, holds := s.Conditions[c]; holds {
			all = append(all, c)
		}
	}
	return all
}

func TestWatchLooksAtEveryIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a", "b", "c")
		if err := sc.Ready(); err == nil {
			t.Error("ready before the store was read")
		}
		sc.run(t)
		sc.wait(time.Second)
		if err := sc.Ready(); err == nil {
			t.Error("ready before the first look")
		}
		sc.wait(soonest + 11*time.Second)
		if err := sc.Ready(); err != nil {
			t.Errorf("after the first pass: %v", err)
		}
		sc.wait(10*time.Minute - soonest)
		for _, n := range []string{"a", "b", "c"} {
			if got := sc.count(n); got < 10 || got > 12 {
				t.Errorf("%s was looked at %d times in ten minutes", n, got)
			}
			if s, known := sc.of(n); !known || len(s.Conditions) > 0 || time.Since(s.Complete) > 2*time.Minute {
				t.Errorf("%s: %+v", n, s)
			}
		}
		if s := sc.Report(); s.Failing || s.Unread > 0 || time.Since(s.Read) > time.Minute {
			t.Errorf("the store: %+v", s)
		}
		if sc.log.Len() > 0 {
			t.Errorf("all is well, and it logs %s", &sc.log)
		}
		sc.add(t, "d") // soon
		sc.wait(reread + soonest + time.Second)
		if sc.count("d") == 0 {
			t.Error("a new issuer was not looked at soon")
		}
		if err := sc.Ready(); err != nil {
			t.Errorf("a new issuer ends readiness: %v", err)
		}
	})
}

// One origin that takes long delays nobody else's looks.
func TestWatchWithASlowOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a", "b", "slow")
		sc.sees = func(ctx context.Context, u string) (verify.Sight, error) {
			d := 11 * time.Second
			if u == url("slow") {
				d = 4 * time.Minute
			}
			return sighting(), sleep(ctx, d)
		}
		sc.run(t)
		sc.wait(20 * time.Minute)
		for _, n := range []string{"a", "b"} {
			for k := 1; k < len(sc.looks[url(n)]); k++ {
				if gap := sc.looks[url(n)][k].Sub(sc.looks[url(n)][k-1]); gap > time.Minute {
					t.Errorf("%s waited %v", n, gap)
				}
			}
		}
		if n := sc.count("slow"); n < 4 || n > 6 {
			t.Errorf("the slow one was looked at %d times", n)
		}
	})
}

// Absence ends nothing; a tombstone does.
func TestWatchAndTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a", "b", "c")
		sc.run(t)
		sc.wait(2 * time.Minute)
		sc.store.Delete("a")
		sc.store.Set("b", []byte("junk"))
		sc.wait(2 * time.Minute)
		before := sc.count("a")
		sc.wait(5 * time.Minute)
		if sc.count("a") < before+4 || sc.Report().Unread != 2 || sc.Report().Failing {
			t.Errorf("an issuer that is absent was looked at %d times more; store %+v", sc.count("a")-before, sc.Report())
		}
		if got := sc.conditions("a"); !slices.Equal(got, []Condition{NotCompared}) {
			t.Errorf("conditions of an issuer that is absent: %v", got)
		}
		s, _ := keystore.Update(t.Context(), sc.store.Store, "c", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Withdraw(keystore.Change{At: time.Now().Add(365 * 24 * time.Hour), Why: "x", Force: true})
		})
		if !s.Withdrawn() {
			t.Fatal("not withdrawn")
		}
		sc.wait(time.Minute)
		if _, known := sc.of("c"); known {
			t.Error("an issuer that was withdrawn is watched")
		}
		at := sc.count("c")
		sc.wait(5 * time.Minute)
		if sc.count("c") != at {
			t.Error("an issuer that was withdrawn is looked at")
		}
		for _, line := range []string{`"key_set":"a"`, `"key_set":"b"`} {
			if n := strings.Count(sc.log.String(), `{"msg":"a key set is missing, cannot be read, or is outside --issuer-url; its issuers are watched as they were",`+line+"}"); n != 1 {
				t.Errorf("%s: %d lines in\n%s", line, n, &sc.log)
			}
		}
		if strings.Contains(sc.log.String(), "/c") {
			t.Errorf("something is said of an issuer that was withdrawn:\n%s", &sc.log)
		}
	})
}

// The writer of a store chooses nobody whom the watch dials: a key set that may not have one of its issuer URLs is not looked at, and
// counts as unread. One that was admitted before is looked at as it was.
func TestWatchOfWhatIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a", "b")
		var foreign atomic.Bool
		sc.c.Admits = func(s keystore.KeySet) bool { return s.Name() == "a" && !foreign.Load() }
		sc.run(t)
		sc.wait(2 * time.Minute)
		if sc.count("a") == 0 || sc.count("b") > 0 || sc.Report().Unread != 1 {
			t.Errorf("a was looked at %d times and b %d times; store %+v", sc.count("a"), sc.count("b"), sc.Report())
		}
		if err := sc.Ready(); err != nil {
			t.Errorf("what is not admitted is waited for: %v", err)
		}
		foreign.Store(true)
		s, _, err := sc.store.Load(t.Context(), "a")
		check(t, err)
		doc, err := keystore.Encode(s)
		check(t, err)
		sc.store.Set("a", bytes.Replace(doc, []byte("- "+url("a")), []byte("- "+url("a")+"\n  - https://intranet.example.net"), 1))
		sc.wait(time.Minute)
		before := sc.count("a")
		sc.wait(5 * time.Minute)
		if sc.count("a") < before+4 || len(sc.looks["https://intranet.example.net"]) > 0 || sc.Report().Unread != 2 {
			t.Errorf("a was looked at %d times more, looks %v; store %+v", sc.count("a")-before, sc.looks, sc.Report())
		}
	})
}

// A store that fails or hangs: what was listed last is watched, and what was found stays.
func TestWatchOutlivesTheStore(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"fails": func(context.Context, storetest.Op) (bool, error) { return false, errors.New("connection refused") },
		"hangs": func(ctx context.Context, _ storetest.Op) (bool, error) { <-ctx.Done(); return false, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := newScene(t, "a", "b")
				bad := true
				sc.sees = func(ctx context.Context, u string) (verify.Sight, error) {
					sc.mu.Lock()
					defer sc.mu.Unlock()
					if u == url("a") && bad {
						return sighting(rogue("192.0.2.1:443")), nil
					}
					return sighting(), nil
				}
				sc.run(t)
				sc.wait(2 * time.Minute)
				sc.store.Inject(fault)
				sc.mu.Lock()
				bad = false
				sc.mu.Unlock()
				read, before := sc.Report().Read, sc.count("b")
				sc.wait(10 * time.Minute)
				if s := sc.Report(); !s.Failing || time.Since(s.Read) < 9*time.Minute || s.Read.Before(read) {
					t.Errorf("the store: %+v", s)
				}
				if got := sc.count("b") - before; got < 9 {
					t.Errorf("during the outage an issuer was looked at %d times", got)
				}
				if got := sc.conditions("a"); !slices.Equal(got, []Condition{RogueKey, NotCompared}) {
					t.Errorf("conditions during the outage: %v", got)
				}
				sc.store.Inject(nil)
				sc.wait(3 * time.Minute)
				if got := sc.conditions("a"); len(got) > 0 || sc.Report().Failing {
					t.Errorf("after the outage: %v, %+v", got, sc.Report())
				}
				for line, want := range map[string]int{
					`"a key is published that the store does not know","key_set":"a"`: 1, `"no key is published any more that`: 1,
					`"the store cannot be read;`: 1, `"the store can be read again"`: 1,
					`"what is published cannot be compared with the store"`: 2, `"what is published is compared with the store again"`: 2,
				} {
					if got := strings.Count(sc.log.String(), line); got != want {
						t.Errorf("%d lines %s, want %d, in\n%s", got, line, want, &sc.log)
					}
				}
			})
		})
	}
}

func TestWatchBeginsWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a")
		sc.store.Inject(func(context.Context, storetest.Op) (bool, error) { return false, errors.New("no route to host") })
		sc.run(t)
		sc.wait(10 * time.Minute)
		if err := sc.Ready(); err == nil || !sc.Report().Failing || !sc.Report().Read.IsZero() {
			t.Errorf("ready %v, %+v", err, sc.Report())
		}
		sc.store.Inject(nil)
		sc.wait(reread + soonest + 12*time.Second)
		if err := sc.Ready(); err != nil || sc.count("a") == 0 {
			t.Errorf("once the store is there: %v", err)
		}
	})
}

// A watcher never writes key sets: it works on a store whose every Put fails the test. Looks go to the records, and those
// that cannot be written there do not count.
func TestWatchWritesObservationsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newScene(t, "a")
		sc.store.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind == storetest.OpPut {
				t.Errorf("it writes key set %q", op.Name)
				return false, errors.New("refused")
			}
			return true, nil
		})
		records := storetest.NewMemory(t)
		sc.c.Records, sc.c.Vantage = observation.NewStore(records), "eu"
		sc.run(t)
		sc.wait(3 * time.Minute)
		r, err := sc.c.Records.Load(t.Context(), "a", observation.Subject{Issuer: url("a"), Vantage: "eu"})
		check(t, err)
		s, _ := sc.of("a")
		if r.Complete.IsZero() || !r.Complete.Equal(s.Complete) || records.Writes() < 3 {
			t.Errorf("record %v, status %v, %d writes", r.Complete, s.Complete, records.Writes())
		}
		records.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind == storetest.OpPut {
				return false, keystore.ErrReadOnly
			}
			return true, nil
		})
		sc.wait(3 * time.Minute)
		now, _ := sc.of("a")
		if got := sc.conditions("a"); !slices.Equal(got, []Condition{NotRecorded}) || now.Complete.After(s.Complete.Add(time.Minute)) {
			t.Errorf("%v; complete at %v, before that %v", got, now.Complete, s.Complete)
		}
	})
}
