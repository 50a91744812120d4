package replicate_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A key set that cannot be read in time keeps no other from being copied. It is told of, and copied once it can be read.
func TestMirrorPassesOverWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirrored(t)
		m.from.Set("h", []byte(storetest.Text(t, storetest.KeySet(t, "h"))))
		var calls atomic.Int64
		free := make(chan struct{})
		m.from.Inject(hanging(free, &calls))
		m.config.Permitted = ownPath
		m.Mirror = replicate.NewMirror(m.config)
		defer m.run()()
		time.Sleep(time.Minute)
		m.wantCopied("prod-a", m.current)
		m.wantRefused(lastgood.ReasonUnreadable, 1)
		if !m.Status().Failing {
			t.Error("it is not failing")
		}
		close(free)
		time.Sleep(time.Minute)
		m.wantRefused(lastgood.ReasonUnreadable, 0)
		if m.Status().Failing || m.Ready() != nil || m.copied("h") == "" {
			t.Errorf("%+v, %v", m.Status(), m.Ready())
		}
	})
}
