package hang

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The figures are those that issuer/listen/README.md and keypostd's reference name.
const (
	patience = 2 * time.Second
	most     = 32
)

// A call that hangs is given up on, and none is made until it has come back.
func TestAwait(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{0: patience, 5 * time.Second: 5 * time.Second, time.Second: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			g, free, began := &Guard{Patience: own}, make(chan struct{}), time.Now()
			says := "file hangs: the file system has not answered since " + began.UTC().Format(time.RFC3339) + "; "
			var calls atomic.Int32
			for range 10 {
				err := Do(t.Context(), g, "file", func() error { calls.Add(1); <-free; return nil })
				if hanging := (*Error)(nil); !errors.As(err, &hanging) || !strings.HasPrefix(err.Error(), says) {
					t.Errorf("error %v, want %s", err, says)
				}
			}
			if calls.Load() != 1 || time.Since(began) != want {
				t.Errorf("%d calls in %v, want one and %v", calls.Load(), time.Since(began), want)
			}
			close(free)
			synctest.Wait()
			if n, err := Await(t.Context(), g, "other", func() (int, error) { return 7, nil }); n != 7 || err != nil {
				t.Errorf("after the trouble: %d, %v", n, err)
			}
		})
	}
}

// A call that is given up with its context goes on. It is noted as hanging when patience has passed, not before.
func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, free, began := new(Guard), make(chan struct{}), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := Do(ctx, g, "file", func() error { <-free; return nil }); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		if err := Do(t.Context(), g, "file", func() error { return nil }); err != nil {
			t.Errorf("after a second: %v", err)
		}
		time.Sleep(patience)
		err := Do(t.Context(), g, "file", func() error { t.Error("a file that hangs is asked for again"); return nil })
		if !errors.As(err, new(*Error)) || !strings.Contains(err.Error(), began.UTC().Format(time.RFC3339)) {
			t.Errorf("after patience: %v", err)
		}
		close(free)
		synctest.Wait()
		if err := Do(t.Context(), g, "file", func() error { return nil }); err != nil {
			t.Errorf("after the trouble: %v", err)
		}
	})
}

// Each call that hangs keeps a thread: no number of callers that begin at once, or are given up with their context, makes more than 32.
func TestMost(t *testing.T) {
	for name, callers := range map[string]time.Duration{"patient": time.Hour, "given up": time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g, free, began := new(Guard), make(chan struct{}), time.Now()
			var calls atomic.Int32
			var all sync.WaitGroup
			for i := range 10 * most {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), callers)
					defer cancel()
					if err := Do(ctx, g, fmt.Sprint(i), func() error { calls.Add(1); <-free; return nil }); err == nil {
						t.Errorf("%s: no error", name)
					}
				})
			}
			all.Wait()
			if calls.Load() != most || time.Since(began) > patience {
				t.Errorf("%s: %d calls in %v", name, calls.Load(), time.Since(began))
			}
			time.Sleep(2 * patience)
			if err := Do(t.Context(), g, "other", func() error { return nil }); err == nil {
				t.Errorf("%s: 32 calls hang, and one more was made", name)
			}
			close(free)
			synctest.Wait()
			if err := Do(t.Context(), g, "file", func() error { return nil }); err != nil {
				t.Errorf("%s: after the trouble: %v", name, err)
			}
		})
	}
}
