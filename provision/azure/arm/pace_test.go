package arm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Writes for one identity keep their distance, and so do those of the subscription; identities do not wait for each other more
// than that.
func TestPaceKeepsAzuresRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(credentialPause, subscriptionPause)
		start := time.Now()
		var mu sync.Mutex
		var all []time.Time
		var group sync.WaitGroup
		for i := range 5 {
			group.Go(func() {
				var last time.Time
				for range 3 {
					if err := p.Take(t.Context(), fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
					now := time.Now()
					if d := now.Sub(last); d < credentialPause {
						t.Errorf("two writes for one identity within %v", d)
					}
					last = now
					mu.Lock()
					all = append(all, now)
					mu.Unlock()
				}
			})
		}
		group.Wait()
		for i := 1; i < len(all); i++ {
			if d := all[i].Sub(all[i-1]); d < subscriptionPause {
				t.Errorf("two writes of the subscription within %v", d)
			}
		}
		if took := time.Since(start); took > 2*credentialPause+5*subscriptionPause {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		if err := p.Take(ctx, "0"); err == nil || err.Error() != "interrupted" {
			t.Errorf("after an interruption: %v", err)
		}
	})
}
