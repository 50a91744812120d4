package issuer

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

// hanging is a fault with which operations do not end before their context does, which is all that a backend promises.
func hanging(which func(storetest.Op) bool) storetest.Fault {
	return func(ctx context.Context, op storetest.Op) (bool, error) {
		if !which(op) {
			return true, nil
		}
		<-ctx.Done()
		return false, ctx.Err()
	}
}

func loading(names ...keystore.Name) func(storetest.Op) bool {
	return func(op storetest.Op) bool { return op.Kind == storetest.OpGet && slices.Contains(names, op.Name) }
}

const failingMetric = "keypost_key_sets_read_failing"

func (b *bench) wantFailing(want int) {
	b.t.Helper()
	text := fmt.Sprintf("# HELP %[1]s 1 while the store cannot be listed.\n# TYPE %[1]s gauge\n%[1]s %[2]d\n", failingMetric, want)
	if err := testutil.CollectAndCompare(b.Publisher, strings.NewReader(text), failingMetric); err != nil {
		b.t.Error(err)
	}
}

// While the store hangs, the last good versions stay, which a metric and one line of the log tell. Afterwards everything is as
// before.
func TestStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1)}}, doc{name: "b", generation: 1})
		stop := b.run(t.Context())
		time.Sleep(time.Second)
		b.said()
		b.store.Inject(hanging(func(storetest.Op) bool { return true }))
		b.put(doc{name: "a", generation: 2, keys: []keystore.VerificationKey{key(t, 1), key(t, 3)}})
		time.Sleep(time.Hour)
		b.serves(urlA, key(t, 1))
		b.wantFailing(1)
		if err := b.Ready(); err != nil {
			t.Errorf("unready: %v", err)
		}
		if lines := b.said(); len(lines) > 3 { // the listing, and at most the two documents
			t.Errorf("logged %q", lines)
		}
		b.store.Inject(nil)
		time.Sleep(2 * readTime)
		b.serves(urlA, key(t, 1), key(t, 3))
		b.rejected("a", "")
		b.wantFailing(0)
		stop()
	})
}

// One document that cannot be read in time holds the others up no longer than that, and is served once it can be read.
func TestOneKeySetHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(doc{name: "a", generation: 1}, doc{name: "b", generation: 1})
		b.store.Inject(hanging(loading("a")))
		stop := b.run(t.Context())
		time.Sleep(readTime + time.Second)
		b.serves(urlB)
		b.refuses(urlA, http.StatusServiceUnavailable)
		b.rejected("a", lastgood.ReasonUnreadable)
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "1 of 2") {
			t.Errorf("Ready() = %v", err)
		}
		time.Sleep(lastgood.StartPatience + readTime + tick)
		if err := b.Ready(); err != nil {
			t.Errorf("not ready after five minutes: %v", err)
		}
		b.store.Inject(nil)
		time.Sleep(readTime + tick)
		b.serves(urlA)
		stop()
	})
}

// Who claims a URL is not known while one who may claim it cannot be read: the first to be read must not get it.
func TestURLIsNotGivenWhileARivalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(shared(t, "a", 1, 1), shared(t, "b", 1, 2), doc{name: "d", generation: 1})
		b.store.Inject(hanging(loading("a")))
		defer b.run(t.Context())()
		time.Sleep(readTime + time.Second)
		b.rejected("b", lastgood.ReasonURLConflict)
		b.refuses(urlShared, http.StatusServiceUnavailable)
		b.serves("https://oidc.example.com/d")
		b.store.Inject(nil)
		time.Sleep(readTime + tick)
		b.rejected("a", lastgood.ReasonURLConflict)
		b.rejected("b", lastgood.ReasonURLConflict)

		b.store.Delete("a")
		time.Sleep(2 * batchTime)
		b.serves(urlShared, key(t, 2))
	})
}
