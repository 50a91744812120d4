package replicate

import (
	"context"
	"errors"
	"math/rand/v2"
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

// document is one key set as a backend returned it.
type document struct {
	name     keystore.Name
	revision keystore.Revision   // empty when there is none
	data     []byte              // byte for byte
	version  *lastgood.Summary   // nil when there is none
	rejected *lastgood.Rejection // why it is not to be copied, judged by itself
	err      error               // of reading it
}

// admission refuses a key set for reasons of the reader's own; nil admits every one.
type admission func(keystore.KeySet) *lastgood.Rejection

// loadAll loads documents, several at a time. The error is that of ctx.
func loadAll(ctx context.Context, from keystore.Backend, names []keystore.Name, admit admission) ([]document, error) {
	all := make([]document, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var breaker breaker
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that it is not always the same ones that come first
		all[i] = document{name: names[i], err: errStoreDown, rejected: lastgood.RejectError(errStoreDown)}
		g.Go(func() error {
			if !breaker.open() {
				all[i] = load(ctx, from, names[i], admit)
				breaker.count(all[i].rejected)
			}
			return ctx.Err() // else an interruption would look like a thousand unreadable key sets
		})
	}
	return all, g.Wait()
}

func load(ctx context.Context, from keystore.Backend, n keystore.Name, admit admission) document {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var s keystore.KeySet
	data, rev, err := from.Get(ctx, n)
	if err == nil {
		s, err = keystore.Parse(n, data)
	}
	if err != nil {
		return document{name: n, revision: rev, rejected: lastgood.RejectError(err), err: err}
	}
	version := lastgood.SummaryOf(s)
	d := document{name: n, revision: rev, data: data, version: &version}
	if admit != nil {
		d.rejected = admit(s)
	}
	return d
}

// breaker ends the reading of a store of which nothing can be read, so that ten thousand timeouts are not waited for.
type breaker struct{ failed, passed atomic.Int64 }

var errStoreDown = errors.New("it was not tried, since no key set before it could be read")

func (b *breaker) open() bool { return b.passed.Load() == 0 && b.failed.Load() >= 4*parallel }

func (b *breaker) count(r *lastgood.Rejection) {
	if r.Is(lastgood.ReasonUnreadable) {
		b.failed.Add(1)
		return
	}
	b.passed.Add(1)
}
