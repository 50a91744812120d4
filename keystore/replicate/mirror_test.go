package replicate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

const poll = 10 * time.Second

// mirrored is a store, its mirror and the copy. prod-a has a history: one of its two keys was revoked, and one added.
type mirrored struct {
	*replicate.Mirror
	t              *testing.T
	from, to       *storetest.MemStore
	log            *observer.ObservedLogs
	beats          atomic.Int64
	config         replicate.MirrorConfig
	stays, leaked  keystore.VerificationKey
	first, current string // documents of prod-a
}

func newMirrored(t *testing.T) *mirrored {
	t.Helper()
	core, log := observer.New(zap.InfoLevel)
	m := &mirrored{t: t, from: storetest.NewMemStore(t), to: storetest.NewMemStore(t), log: log, stays: storetest.Key(t), leaked: storetest.Key(t)}
	a := storetest.KeySet(t, "prod-a", m.stays, m.leaked)
	m.first = storetest.Text(t, a)
	for _, s := range []keystore.KeySet{a, storetest.KeySet(t, "prod-b")} {
		if err := keystore.Create(t.Context(), m.from.Store, s); err != nil {
			t.Fatal(err)
		}
	}
	m.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(storetest.Change(time.Hour), m.leaked.ID(), keystore.RevokeOptions{})
	})
	m.current = storetest.Text(t, m.update("prod-a", storetest.Mark("third")))
	m.config = replicate.MirrorConfig{From: m.from, To: m.to, Poll: poll, Log: zap.New(core), OnPass: func(replicate.MirrorStatus) error {
		m.beats.Add(1)
		return nil
	}}
	m.Mirror = replicate.NewMirror(m.config)
	return m
}

func (m *mirrored) update(n keystore.Name, change func(keystore.KeySet) (keystore.KeySet, error)) keystore.KeySet {
	m.t.Helper()
	s, err := keystore.Update(m.t.Context(), m.from.Store, n, change)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// run mirrors until the returned function is called.
func (m *mirrored) run() (stop func()) {
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	time.Sleep(time.Second)
	return func() { cancel(); <-done }
}

// pass makes a pass that must go well.
func (m *mirrored) pass() {
	m.t.Helper()
	if err := m.Pass(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// copied returns the document that the copy has; empty when it has none.
func (m *mirrored) copied(n keystore.Name) string {
	m.t.Helper()
	data, _, err := m.to.Get(m.t.Context(), n)
	if errors.Is(err, keystore.ErrNotFound) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *mirrored) wantCopied(n keystore.Name, document string) {
	m.t.Helper()
	if got := m.copied(n); got != document {
		m.t.Errorf("the copy of %s is\n%s\nwant\n%s", n, got, document)
	}
}

func (m *mirrored) wantRefused(reason keystore.Reason, n int) {
	m.t.Helper()
	got := 0
	for _, r := range m.Status().Refused {
		if r.Reason == reason {
			got++
		}
	}
	if got != n {
		m.t.Errorf("%d key sets are refused as %s (%v), want %d", got, reason, m.Status().Refused, n)
	}
}

func (m *mirrored) wantLogged(message string, times int) {
	m.t.Helper()
	if got := m.log.FilterMessageSnippet(message).Len(); got != times {
		m.t.Errorf("%d lines %q, want %d: %v", got, message, times, m.log.All())
	}
}

func down(context.Context, storetest.Op) (bool, error) {
	return false, errors.New("connection refused")
}

func failOn(kind string) storetest.Fault {
	return func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == kind {
			return false, errors.New("forbidden")
		}
		return true, nil
	}
}

// edited is the current document of prod-a with a change made by hand, as its next generation.
func (m *mirrored) edited(old, new string) []byte {
	m.t.Helper()
	text := strings.Replace(m.current, "generation: 3\n", "generation: 4\n", 1)
	if !strings.Contains(text, old) {
		m.t.Fatalf("no %q in %s", old, text)
	}
	return []byte(strings.Replace(text, old, new, 1))
}

func TestMirrorFollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		defer m.run()()
		m.wantCopied("prod-a", m.current)
		s := m.update("prod-a", storetest.Mark("fourth"))
		time.Sleep(200 * time.Millisecond) // only the watch
		m.wantCopied("prod-a", storetest.Text(t, s))
		tombstone := m.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Withdraw(storetest.Change(365 * 24 * time.Hour))
		})
		time.Sleep(200 * time.Millisecond)
		m.wantCopied("prod-b", storetest.Text(t, tombstone))
		if n := m.to.Writes(); n != 4 {
			t.Errorf("%d writes, want 4", n)
		}
		time.Sleep(time.Hour)
		if n := m.to.Writes(); n != 4 || m.log.FilterLevelExact(zap.WarnLevel).Len() > 0 {
			t.Errorf("%d writes after an hour without changes, and %v", n, m.log.All())
		}
		if age := time.Since(m.Status().Complete); age > poll || m.Status().Held != 2 {
			t.Errorf("the last complete pass is %v old, %d key sets", age, m.Status().Held)
		}
	})
}

// Mass absence: the custom resource definition deleted, a namespace emptied, a wrong prefix, a bucket recreated.
func TestMirrorOutlivesMassAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		defer m.run()()
		b := m.copied("prod-b")
		m.from.Delete("prod-a")
		m.from.Delete("prod-b")
		time.Sleep(time.Hour)
		m.wantCopied("prod-a", m.current)
		m.wantCopied("prod-b", b)
		m.wantRefused(lastgood.ReasonMissing, 2)
		m.wantLogged("key set is missing in the store", 2)
		if s := m.Status(); s.Failing || s.Held != 2 || m.Ready() != nil {
			t.Errorf("status %+v", s)
		}
		m.from.Set("prod-a", []byte(m.first)) // the backup of the day before
		m.from.Set("prod-b", []byte(b))
		time.Sleep(time.Minute)
		m.wantCopied("prod-a", m.current)
		m.wantRefused(lastgood.ReasonMissing, 0)
		m.wantRefused(lastgood.ReasonOlderGeneration, 1)
		m.wantLogged("key set is as it was copied again", 1)
	})
}

func TestMirrorOutlivesTheStore(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{
		"it is down":           down,
		"it lists no more":     failOn(storetest.OpList),
		"permission was taken": failOn(storetest.OpGet),
		"it hangs": func(ctx context.Context, _ storetest.Op) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirrored(t)
				stop := m.run()
				before := m.beats.Load()
				b := m.copied("prod-b")
				m.from.Set("prod-a", []byte(m.first))
				m.from.Inject(fault)
				time.Sleep(26 * time.Hour)
				m.wantCopied("prod-a", m.current)
				m.wantCopied("prod-b", b)
				if s := m.Status(); !s.Failing || time.Since(s.Complete) < 25*time.Hour || m.beats.Load() > before+1 {
					t.Errorf("status %+v, %d beats", s, m.beats.Load()-before)
				}
				m.from.Inject(nil)
				next := storetest.Text(t, m.update("prod-b", storetest.Mark("x")))
				time.Sleep(3 * time.Minute) // a hung call ends first
				m.wantCopied("prod-b", next)
				if m.Status().Failing {
					t.Errorf("status %+v", m.Status())
				}
				m.wantLogged("key sets cannot be read from the store", 1)
				m.wantLogged("key sets can be read from the store again", 1)
				began := time.Now()
				m.from.Inject(fault)
				stop()
				if took := time.Since(began); took > time.Second {
					t.Errorf("it stopped after %v", took)
				}
			})
		})
	}
}

// A watch that is cut again and again costs one line when it is lost and one when it is back, and no change.
func TestMirrorOutlivesItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		w := &watcher{MemStore: m.from}
		m.config.From = w
		m.Mirror = replicate.NewMirror(m.config)
		defer m.run()()
		w.broken.Store(true)
		(*w.cut.Load())()
		synctest.Wait()
		s := m.update("prod-b", storetest.Mark("x"))
		time.Sleep(poll + time.Second)
		m.wantCopied("prod-b", storetest.Text(t, s))
		time.Sleep(time.Hour)
		w.broken.Store(false)
		s = m.update("prod-b", storetest.Mark("y")) // which no watch sees
		time.Sleep(time.Second)
		m.wantCopied("prod-b", storetest.Text(t, s))
		m.wantLogged("the watch on the key sets was lost", 1)
		m.wantLogged("the watch on the key sets is back", 1)
	})
}

type watcher struct {
	*storetest.MemStore
	broken atomic.Bool
	cut    atomic.Pointer[context.CancelFunc] // ends the watch that stands
}

func (w *watcher) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	if w.broken.Load() {
		return errors.New("too old resource version")
	}
	ctx, cancel := context.WithCancel(ctx)
	w.cut.Store(&cancel)
	return w.MemStore.Watch(ctx, changed)
}

// The copy is mended when somebody else's hand was in it.
func TestMirrorMendsTheCopy(t *testing.T) {
	for name, spoil := range map[string]func(m *mirrored){
		"removed": func(m *mirrored) { m.to.Delete("prod-a") },
		"junk":    func(m *mirrored) { m.to.Set("prod-a", []byte("junk")) },
		"older":   func(m *mirrored) { m.to.Set("prod-a", []byte(m.first)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirrored(t)
			m.pass()
			spoil(m)
			m.pass()
			m.wantCopied("prod-a", m.current)
			m.wantRefused(lastgood.ReasonOlderGeneration, 0)

			// And what is in the store is still held against what was in the copy.
			m.from.Set("prod-a", []byte(m.first))
			spoil(m)
			m.pass()
			m.wantRefused(lastgood.ReasonOlderGeneration, 1)
		})
	}
	t.Run("newer", func(t *testing.T) {
		m := newMirrored(t)
		m.pass()
		m.to.Set("prod-a", m.edited("third", "fourth"))
		m.pass()
		m.wantRefused(lastgood.ReasonOlderGeneration, 1)
	})
	t.Run("of a newer major version", func(t *testing.T) {
		m := newMirrored(t)
		m.to.Set("prod-a", m.edited("keypost.dev/v1", "keypost.dev/v2"))
		m.pass()
		m.wantRefused(lastgood.ReasonNewerVersion, 1)
	})
}

func TestMirrorGoesOnWhenTheCopyCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.to.Inject(failOn(storetest.OpPut))
		defer m.run()()
		time.Sleep(10 * time.Minute)
		if s := m.Status(); !s.Failing || !s.Complete.IsZero() || m.beats.Load() > 0 || m.Ready() == nil {
			t.Errorf("status %+v, %d beats", s, m.beats.Load())
		}
		m.to.Inject(nil)
		time.Sleep(poll)
		m.wantCopied("prod-a", m.current)
		m.wantLogged("the copy cannot be written", 1)
		m.wantLogged("the copy can be written again", 1)
		if s := m.Status(); s.Failing || m.beats.Load() != 1 || m.Ready() != nil {
			t.Errorf("status %+v, %d beats", s, m.beats.Load())
		}
	})
}

// A heartbeat that cannot be written is trouble with the copy too.
func TestMirrorTellsOfAHeartbeatThatFails(t *testing.T) {
	m := newMirrored(t)
	m.config.OnPass = func(replicate.MirrorStatus) error { return errors.New("no space left on device") }
	m.Mirror = replicate.NewMirror(m.config)
	if err := m.Pass(t.Context()); err == nil || !m.Status().Failing {
		t.Errorf("Pass = %v, status %+v", err, m.Status())
	}
	m.wantCopied("prod-a", m.current)
}

// earlier makes a complete pass in an earlier run.
func (m *mirrored) earlier() {
	m.t.Helper()
	_ = m.Pass(m.t.Context())
	m.config.Earlier = replicate.Heartbeat{Complete: m.Status().Complete}
}

// ownPath permits a key set the URL with its name.
func ownPath(n keystore.Name, r keystore.Route) bool {
	return r == keystore.Route{Host: "oidc.example.com", Path: "/" + string(n)}
}

// A newcomer does not get an issuer URL that a document which was not understood may have: of one that is unreadable every
// one that is permitted to it, of a broken one those in it, of one that waits its own. Reports of the watch change nothing.
func TestMirrorGivesNoURLAwayThatAnotherMayHave(t *testing.T) {
	const url, text = "  - https://oidc.example.com/prod-b\n", "  - https://shared.example.com\n"
	for name, tc := range map[string]struct {
		happens func(m *mirrored, thief string)
		copied  map[time.Duration]bool // the thief, since the start
	}{
		"unreadable": {func(m *mirrored, _ string) {
			m.from.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
				if op.Name == "prod-b" {
					return false, errors.New("forbidden")
				}
				return true, nil
			})
		}, map[time.Duration]bool{0: false, 4 * time.Minute: false, 6 * time.Minute: true}},
		"broken": {func(m *mirrored, thief string) {
			m.from.Set("prod-b", []byte(strings.Replace(thief, "state: active", "state: x", 1)))
		}, map[time.Duration]bool{0: false, time.Hour: false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirrored(t)
				thief := strings.Replace(storetest.Text(t, storetest.KeySet(t, "thief")), "oidc.example.com/thief", "oidc.example.com/prod-b", 1)
				if !strings.Contains(thief, url) || !strings.Contains(thief, "state: active") {
					t.Fatal(thief)
				}
				m.from.Set("thief", []byte(thief))
				tc.happens(m, thief)
				m.Mirror = replicate.NewMirror(m.config)
				began := time.Now()
				defer m.run()()
				for _, at := range []time.Duration{0, 4 * time.Minute, 6 * time.Minute, time.Hour} {
					time.Sleep(time.Until(began.Add(at)))
					m.from.Set("thief", []byte(thief+"# touched\n")) // only the watch reports it
					time.Sleep(time.Second)
					m.from.Set("thief", []byte(thief))
					time.Sleep(time.Second)
					if want, asked := tc.copied[at]; asked && (m.copied("thief") != "") != want {
						t.Errorf("after %v it is copied: %v", at, !want)
					}
				}
			})
		})
	}
}

// unread lets the reading of key sets fail, at once or as late as it can.
func unread(late bool, names ...keystore.Name) storetest.Fault {
	return func(ctx context.Context, op storetest.Op) (bool, error) {
		if op.Kind != storetest.OpGet || !slices.Contains(names, op.Name) {
			return true, nil
		}
		if late {
			<-ctx.Done()
			return false, ctx.Err()
		}
		return down(ctx, op)
	}
}

func TestMirrorReady(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(m *mirrored)
		at     map[time.Duration]bool // since the start
	}{
		"a whole copy":                   {func(*mirrored) {}, map[time.Duration]bool{0: true}},
		"no store":                       {func(m *mirrored) { m.from.Inject(down) }, map[time.Duration]bool{time.Hour: false}},
		"no store, but a copy of before": {func(m *mirrored) { m.earlier(); m.from.Inject(down) }, map[time.Duration]bool{0: true}},
		"a store that hangs, but a copy of before": {func(m *mirrored) {
			m.earlier()
			m.from.Inject(func(ctx context.Context, _ storetest.Op) (bool, error) { <-ctx.Done(); return false, ctx.Err() })
		}, map[time.Duration]bool{0: false, 4 * time.Minute: true}},
		"one that cannot be copied": {func(m *mirrored) { m.from.Set("prod-b", []byte("junk")) }, map[time.Duration]bool{0: true}},
		"one that cannot be read":   {func(m *mirrored) { m.from.Inject(unread(false, "prod-b")) }, map[time.Duration]bool{0: false, 4 * time.Minute: false, 6 * time.Minute: true}},
		"one whose reading hangs":   {func(m *mirrored) { m.from.Inject(unread(true, "prod-b")) }, map[time.Duration]bool{0: false, 4 * time.Minute: false, 6 * time.Minute: true}},
		"no store, and half a copy of a run that was not ready": {func(m *mirrored) {
			m.config.Permitted = func(keystore.Name, keystore.Route) bool { return false }
			m.Mirror = replicate.NewMirror(m.config)
			m.from.Inject(unread(false, "prod-b"))
			m.earlier()
			m.from.Inject(down)
		}, map[time.Duration]bool{0: false, time.Hour: false}},
		"none that can be copied": {func(m *mirrored) {
			m.from.Set("prod-a", []byte("junk"))
			m.from.Set("prod-b", []byte("junk"))
		}, map[time.Duration]bool{0: false, 6 * time.Minute: false, time.Hour: false}},
		"an empty store": {func(m *mirrored) { m.from.Delete("prod-a"); m.from.Delete("prod-b") }, map[time.Duration]bool{0: false, time.Hour: false}},
		"no store, and an earlier run that copied nothing": {func(m *mirrored) { m.from.Inject(down); m.config.Earlier.Complete = time.Now() }, map[time.Duration]bool{0: false, time.Hour: false}},
		"an empty store that may be":                       {func(m *mirrored) { m.from.Delete("prod-a"); m.from.Delete("prod-b"); m.config.AllowEmpty = true }, map[time.Duration]bool{0: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirrored(t)
				tc.before(m)
				m.Mirror = replicate.NewMirror(m.config)
				defer m.run()()
				began := time.Now()
				for _, at := range []time.Duration{0, 4 * time.Minute, 6 * time.Minute, time.Hour} {
					time.Sleep(time.Until(began.Add(at)))
					if want, asked := tc.at[at]; asked && want != (m.Ready() == nil) {
						t.Errorf("after %v: %v", at, m.Ready())
					}
				}
				m.from.Inject(down) // it never goes back
				ready := m.Ready() == nil
				time.Sleep(time.Hour)
				if ready && m.Ready() != nil {
					t.Errorf("readiness was withdrawn: %v", m.Ready())
				}
			})
		})
	}
}

// Of two newcomers with one issuer URL neither is copied: which comes first is chance.
func TestMirrorTellsNewcomersWithOneURL(t *testing.T) {
	m := newMirrored(t)
	twin := strings.Replace(storetest.Text(t, storetest.KeySet(t, "prod-c")), "oidc.example.com/prod-c", "oidc.example.com/prod-b", 1)
	m.from.Set("prod-c", []byte(twin))
	m.pass()
	m.wantRefused(lastgood.ReasonURLConflict, 2)
	m.from.Delete("prod-c")
	m.pass()
	m.wantRefused(lastgood.ReasonURLConflict, 0)
	if m.copied("prod-b") == "" {
		t.Error("prod-b is not copied once it has no rival")
	}
}

// An issuer URL passes from a withdrawn key set to its successor within one pass.
func TestMirrorHandsAnIssuerURLOver(t *testing.T) {
	m := newMirrored(t)
	m.pass()
	m.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Withdraw(storetest.Change(365 * 24 * time.Hour))
	})
	heir := strings.Replace(storetest.Text(t, storetest.KeySet(t, "an-heir")), "oidc.example.com/an-heir", "oidc.example.com/prod-b", 1)
	m.from.Set("an-heir", []byte(heir))
	m.pass()
	m.wantCopied("an-heir", heir)
	m.from.Delete("prod-b") // a tombstone may be tidied away
	m.pass()
	m.wantRefused(lastgood.ReasonMissing, 0)
}

// Ten thousand timeouts are not waited for.
func TestMirrorGivesAStoreUpThatReadsNothing(t *testing.T) {
	m := newMirrored(t)
	text := storetest.Text(t, storetest.KeySet(t, "n0"))
	for i := range 1000 {
		m.from.Set(keystore.Name(fmt.Sprintf("n%d", i)), []byte(strings.ReplaceAll(text, "n0\n", fmt.Sprintf("n%d\n", i))))
	}
	var loads atomic.Int64
	m.from.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == storetest.OpGet {
			loads.Add(1)
			return false, errors.New("slow down")
		}
		return true, nil
	})
	if err := m.Pass(t.Context()); err == nil || loads.Load() > 50 {
		t.Errorf("Pass = %v after %d readings", err, loads.Load())
	}
	m.from.Inject(nil)
	m.pass()
	if s := m.Status(); s.Held != 1002 || s.Failing {
		t.Errorf("status %+v", s)
	}
}
