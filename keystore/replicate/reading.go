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
	revision keystore.Revision   // empty if there is none
	document keystore.Document   // byte for byte
	version  *lastgood.Summary   // nil if there is none
	rejected *lastgood.Rejection // why it must not be copied, whatever the destination holds
	err      error               // of reading it
}

// admission refuses key sets by the configuration of a reader; nil admits every one.
type admission func(keystore.KeySet) *lastgood.Rejection

// loadAll loads documents, several at a time, in the order of names. What cannot be read says so itself; the error is that of ctx.
func loadAll(ctx context.Context, from keystore.Backend, names []keystore.Name, admit admission) ([]document, error) {
	all := make([]document, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var breaker breaker
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that after a failure not the same ones are first again
		all[i] = document{name: names[i], err: errStoreDown, rejected: lastgood.RejectError(errStoreDown)}
		g.Go(func() error {
			if !breaker.open() {
				all[i] = load(ctx, from, names[i], admit)
				breaker.count(all[i].rejected)
			}
			return ctx.Err() // else an interruption would look like unreadable key sets
		})
	}
	return all, g.Wait()
}

func load(ctx context.Context, from keystore.Backend, n keystore.Name, admit admission) document {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var s keystore.KeySet
	var doc keystore.Document
	data, rev, err := from.Get(ctx, n)
	if err == nil {
		s, doc, err = keystore.ParseDocument(n, data)
	}
	if err != nil {
		return document{name: n, revision: rev, rejected: lastgood.RejectError(err), err: err}
	}
	version := lastgood.SummaryOf(s)
	d := document{name: n, revision: rev, document: doc, version: &version}
	if admit != nil {
		d.rejected = admit(s)
	}
	return d
}

// breaker is a circuit breaker: if nothing of a store can be read, it spares the timeouts of ten thousand key sets.
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
