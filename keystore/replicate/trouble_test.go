package replicate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// Before the first complete pass nothing is copied only on a report: of two newcomers with one issuer URL the one that is
// reported first would get it.
func TestMirrorCopiesNoReportBeforeACompletePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.from.Inject(failOn(storetest.OpList))
		defer m.run()()
		m.from.Set("prod-b", []byte(storetest.Text(t, storetest.KeySet(t, "prod-b"))))
		time.Sleep(time.Second)
		m.wantCopied("prod-b", "")
	})
}

// After a failed write the next report makes a complete pass, so that what failed does not wait for the poll.
func TestMirrorPassesAfterAFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		defer m.run()()
		m.to.Inject(failOn(storetest.OpPut))
		b := storetest.Text(t, m.update("prod-b", storetest.Mark("x")))
		time.Sleep(200 * time.Millisecond)
		if !m.Status().Failing {
			t.Error("a failed write is not told as trouble")
		}
		m.to.Inject(nil)
		a := storetest.Text(t, m.update("prod-a", storetest.Mark("fourth")))
		time.Sleep(200 * time.Millisecond) // long before the poll
		m.wantCopied("prod-a", a)
		m.wantCopied("prod-b", b)
		if m.Status().Failing {
			t.Errorf("status %+v", m.Status())
		}
	})
}

// A copy that somebody put back behind what it was is as it is in the store, but not the last good version.
func TestMirrorTellsOfACopyThatWentBack(t *testing.T) {
	m := newMirrored(t)
	m.pass()
	m.to.Set("prod-a", m.edited("third", "fourth"))
	must(t, m.ReadCopy(t.Context()))
	m.to.Set("prod-a", []byte(m.current))
	m.pass()
	m.wantRefused(lastgood.ReasonOlderGeneration, 1)
}

// What the copy holds must be known before anything is written over it.
func TestACopyThatCannotBeReadIsNotWritten(t *testing.T) {
	m := newMirrored(t)
	m.to.Set("prod-a", m.edited("third", "fourth"))
	writes := m.to.Writes()
	m.to.Inject(failOn(storetest.OpGet))
	if err := m.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), `"prod-a"`) || !m.Status().Failing || m.Ready() == nil {
		t.Errorf("Pass = %v, status %+v, ready %v", err, m.Status(), m.Ready())
	}
	if all, err := replicate.Copy(t.Context(), m.from, m.to, false); err == nil {
		t.Errorf("Copy = %v", all)
	}
	if n := m.to.Writes() - writes; n != 0 {
		t.Errorf("%d writes", n)
	}
	m.wantLogged("the copy cannot be written", 1)
}

// The age of the copy counts from the beginning of the pass: what changed during it may not be in the copy.
func TestMirrorIsAsOldAsTheBeginningOfItsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.from.Inject(func(context.Context, storetest.Op) (bool, error) { time.Sleep(2 * time.Second); return true, nil })
		began := time.Now()
		m.pass()
		if got := m.Status().Complete; !got.Equal(began) {
			t.Errorf("the copy was made %v after the beginning", got.Sub(began))
		}
	})
}

// Whatever error a stop causes, it is not the store's fault.
func TestAStopIsNoTrouble(t *testing.T) {
	for _, which := range []string{"source", "destination"} {
		for _, kind := range []string{storetest.OpList, storetest.OpGet, storetest.OpPut} {
			m := newMirrored(t)
			m.to.Set("prod-a", []byte(m.first))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st := map[string]*storetest.MemStore{"source": m.from, "destination": m.to}[which]
			st.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
				if op.Kind == kind {
					cancel()
					return false, errors.New("use of closed network connection")
				}
				return true, nil
			})
			err := m.Pass(ctx)
			if ctx.Err() == nil {
				if which == "source" && kind == storetest.OpPut {
					continue // which is never written
				}
				t.Errorf("no %s of the %s", kind, which)
			}
			if !errors.Is(err, context.Canceled) || m.Status().Failing || len(m.Status().Refused) > 0 || m.log.Len() > 0 {
				t.Errorf("a stop in %s of the %s: %v, %+v, %v", kind, which, err, m.Status(), m.log.All())
			}
		}
	}
}

// As long as something can be read, all is tried, also if the first attempts fail.
func TestMirrorTriesAllOfAStoreThatReadsSome(t *testing.T) {
	m := newMirrored(t)
	text := storetest.Text(t, storetest.KeySet(t, "n0"))
	for i := range 198 {
		m.from.Set(keystore.Name(fmt.Sprintf("n%d", i)), []byte(strings.ReplaceAll(text, "n0\n", fmt.Sprintf("n%d\n", i))))
	}
	m.config.Permitted = ownPath
	m.Mirror = replicate.NewMirror(m.config)
	var loads atomic.Int64
	m.from.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind != storetest.OpGet {
			return true, nil
		}
		if n := loads.Add(1); n <= 20 || n%2 == 0 {
			return false, errors.New("slow down")
		}
		return true, nil
	})
	if err := m.Pass(t.Context()); err == nil || loads.Load() != 200 {
		t.Errorf("Pass = %v after %d readings", err, loads.Load())
	}
	m.wantRefused(lastgood.ReasonUnreadable, 20+90)
	if s := m.Status(); s.Held != 90 || !s.Failing {
		t.Errorf("status %+v", s)
	}
}

// What changed while a watch was about to be lost does not wait for the poll.
func TestMirrorPassesWhenItsWatchIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		w := &watcher{MemStore: m.from}
		m.config.From, m.config.Poll = w, time.Hour
		m.Mirror = replicate.NewMirror(m.config)
		defer m.run()()
		w.broken.Store(true)
		(*w.cut.Load())()
		synctest.Wait()
		s := m.update("prod-b", storetest.Mark("x"))
		time.Sleep(200 * time.Millisecond)
		m.wantCopied("prod-b", storetest.Text(t, s))
	})
}
