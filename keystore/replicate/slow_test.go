package replicate_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

// hanging is a fault with which key sets whose names begin with h are not read before free is closed or the context ends.
func hanging(free <-chan struct{}, calls *atomic.Int64) storetest.Fault {
	return func(ctx context.Context, op storetest.Op) (bool, error) {
		if op.Kind == storetest.OpGet && strings.HasPrefix(string(op.Name), "h") {
			calls.Add(1)
			select {
			case <-free:
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		return true, nil
	}
}

// Though many key sets take long to be read, the changes of others are copied at once, or within a few seconds while
// it first shows.
func TestMirrorIsNotHeldUpByWhatHangs(t *testing.T) {
	for _, hung := range []int{1, 16, 64} {
		t.Run(fmt.Sprint(hung), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMirrored(t)
				text := storetest.Text(t, storetest.KeySet(t, "h0"))
				for i := range hung {
					n := fmt.Sprintf("h%d", i)
					m.from.Set(keystore.Name(n), []byte(strings.ReplaceAll(text, "h0\n", n+"\n")))
				}
				defer m.run()()
				var calls atomic.Int64
				free := make(chan struct{})
				m.from.Inject(hanging(free, &calls))
				for i := range hung {
					n := fmt.Sprintf("h%d", i)
					m.from.Set(keystore.Name(n), []byte(strings.ReplaceAll(text, "h0\n", n+"\n")+"\n# x\n"))
				}
				for i := range 200 {
					began := time.Now()
					want := storetest.Text(t, m.update("prod-a", storetest.Mark(fmt.Sprint(i))))
					limit := 200 * time.Millisecond
					if i < 20 {
						limit = 10 * time.Second
					}
					for m.copied("prod-a") != want && time.Since(began) < time.Hour {
						time.Sleep(50 * time.Millisecond)
					}
					if took := time.Since(began); took > limit {
						t.Fatalf("change %d was copied after %v", i, took)
					}
					time.Sleep(time.Second)
				}
				m.wantRefused(lastgood.ReasonUnreadable, hung)
				if err := m.Ready(); err != nil {
					t.Errorf("unready: %v", err)
				}
				if !m.Status().Failing {
					t.Error("it is not failing")
				}
				if limit := int64(hung * 30); calls.Load() > limit {
					t.Errorf("%d readings, want %d at most", calls.Load(), limit)
				}
				close(free)
				time.Sleep(2 * poll)
				m.wantRefused(lastgood.ReasonUnreadable, 0)
				if m.Status().Failing {
					t.Error("it is failing")
				}
			})
		})
	}
}

// stubborn is a store in which reading prod-b takes long, whatever the context says, and returns what was there before.
type stubborn struct {
	*storetest.MemStore
	free   chan struct{}
	under  atomic.Int64
	twice  atomic.Bool
	begins atomic.Int64
}

func (s *stubborn) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	data, rev, err := s.MemStore.Get(ctx, n)
	if n == "prod-b" {
		s.begins.Add(1)
		if s.under.Add(1) > 1 {
			s.twice.Store(true)
		}
		<-s.free
		s.under.Add(-1)
	}
	return data, rev, err
}

// What takes long to be read is copied when it was read, and what has changed meanwhile is copied next. It is read once at
// a time, and told of once.
func TestMirrorTakesWhatWasReadLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		st := &stubborn{MemStore: m.from, free: make(chan struct{})}
		m.config.From, m.config.Permitted = st, ownPath
		m.Mirror = replicate.NewMirror(m.config)
		defer m.run()()
		time.Sleep(10 * time.Minute)
		m.wantCopied("prod-a", m.current)
		m.wantRefused(lastgood.ReasonUnreadable, 1)
		if n := st.begins.Load(); n != 1 {
			t.Errorf("%d readings, want one", n)
		}
		newer := m.update("prod-b", storetest.Mark("newer"))
		time.Sleep(time.Second)
		close(st.free)
		time.Sleep(time.Millisecond)
		m.wantCopied("prod-b", storetest.Text(t, newer))
		m.wantRefused(lastgood.ReasonUnreadable, 0)
		time.Sleep(2 * poll)
		if st.twice.Load() || m.Status().Failing || m.Ready() != nil {
			t.Errorf("read twice at once: %v; %+v, %v", st.twice.Load(), m.Status(), m.Ready())
		}
		if n := m.log.FilterLevelExact(zap.WarnLevel).Len(); n != 2 { // the key set, and the trouble
			t.Errorf("%d warnings: %v", n, m.log.All())
		}
		next := m.update("prod-b", storetest.Mark("next"))
		time.Sleep(time.Second)
		m.wantCopied("prod-b", storetest.Text(t, next))
	})
}
