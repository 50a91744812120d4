package replicate

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// parallel is how many key sets are read or written at once.
const parallel = 8

// loadTimeout bounds the reading of one key set from a store that may be at the other end of a network.
const loadTimeout = 20 * time.Second

// document is one key set as a store returned it: a key set or an error, with a revision where there is one.
type document struct {
	name     keystore.Name
	set      keystore.KeySet
	revision keystore.Revision
	err      error
}

// loadAll loads key sets, several at a time. The error is that of ctx.
func loadAll(ctx context.Context, st keystore.Reader, names []keystore.Name) ([]document, error) {
	all := make([]document, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var breaker breaker
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that it is not always the same ones that come first
		n := names[i]
		g.Go(func() error {
			if all[i] = (document{name: n, err: errStoreDown}); !breaker.open() {
				all[i] = load(ctx, st, n)
				breaker.count(all[i].err)
			}
			return ctx.Err() // else an interruption would look like a thousand unreadable key sets
		})
	}
	return all, g.Wait()
}

func load(ctx context.Context, st keystore.Reader, n keystore.Name) document {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	s, rev, err := st.Load(ctx, n)
	return document{n, s, rev, err}
}

// breaker ends the reading of a store of which nothing can be read, so that ten thousand timeouts are not waited for.
type breaker struct{ failed, passed atomic.Int64 }

var errStoreDown = errors.New("it was not tried, since no key set before it could be read")

func (b *breaker) open() bool { return b.passed.Load() == 0 && b.failed.Load() >= 4*parallel }

func (b *breaker) count(err error) {
	if lastgood.RejectError(err).Is(lastgood.ReasonUnreadable) {
		b.failed.Add(1)
		return
	}
	b.passed.Add(1)
}

// names returns the names in m, sorted.
func names[V any](m map[keystore.Name]V) []keystore.Name { return slices.Sorted(maps.Keys(m)) }
