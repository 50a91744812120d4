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

// document is one key set as a backend returned it, and what became of it when it was copied.
type document struct {
	lastgood.Candidate                   // Version is nil if there is none, and Rejected set if it must not be copied whatever the destination holds
	revision           keystore.Revision // empty if there is none
	text               keystore.Document // byte for byte
	was                int64             // generation of the last good version before it was copied; 0 if there was none
	same               bool              // the same content is stored already
	err                error             // of reading it, or of writing it
}

// generation returns that of the version; 0 if there is none.
func (d *document) generation() int64 {
	if d.Version == nil {
		return 0
	}
	return d.Version.Generation()
}

// admission refuses key sets by the configuration of a reader; nil admits every one.
type admission func(keystore.KeySet) *lastgood.Rejection

// loadAll loads documents, several at a time, in the order of names. What cannot be read says so itself; the error is that of ctx.
func loadAll(ctx context.Context, from keystore.Backend, names []keystore.Name, admit admission) ([]*document, error) {
	all := make([]*document, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var breaker breaker
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that after a failure not the same ones are first again
		d := &document{Candidate: lastgood.Candidate{Name: names[i]}, err: errStoreDown}
		all[i] = d
		g.Go(func() error {
			if !breaker.open() {
				d.load(ctx, from, admit)
				breaker.count(d.err)
			}
			if d.err != nil {
				d.Rejected = lastgood.RejectError(d.err)
			}
			return ctx.Err() // else an interruption would look like unreadable key sets
		})
	}
	return all, g.Wait()
}

func (d *document) load(ctx context.Context, from keystore.Backend, admit admission) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var s keystore.KeySet
	var data []byte
	if data, d.revision, d.err = from.Get(ctx, d.Name); d.err == nil {
		s, d.text, d.err = keystore.ParseDocument(d.Name, data)
	}
	if d.err != nil {
		return
	}
	version := lastgood.SummaryOf(s)
	if d.Version = &version; admit != nil {
		d.Rejected = admit(s)
	}
}

// breaker is a circuit breaker: if nothing of a store can be read, it spares the timeouts of ten thousand key sets.
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
