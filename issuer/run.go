package issuer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
)

// Run reads and publishes until ctx is done: by a complete listing every Poll, and beside it by the source's watch,
// where it has one, within a fraction of a second. It returns nil then; trouble is never a reason to return, since
// serving the last good versions goes on.
func (p *Publisher) Run(ctx context.Context) error {
	pending := &pending{wake: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	if w, ok := p.c.Source.(keystore.Watcher); ok {
		watching.Go(func() { p.watch(ctx, w, pending) })
	}
	defer watching.Wait()
	poll := time.NewTicker(p.c.Poll)
	defer poll.Stop()
	p.refresh(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			p.refresh(ctx)
		case <-pending.wake:
			p.take(ctx, pending)
		}
	}
}

// refresh is Refresh where the error has been dealt with: the log and the metrics tell of it.
func (p *Publisher) refresh(ctx context.Context) {
	if err := p.Refresh(ctx); err != nil && ctx.Err() == nil {
		p.c.Log.Debug("refresh", zap.Error(err))
	}
}

// take waits for the batch to fill and publishes it, without listing where the watch said what changed. Before the
// first complete listing that is not enough: of two key sets with one URL, the one reported first would get it.
func (p *Publisher) take(ctx context.Context, pd *pending) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(batch):
	}
	names, everything := pd.drain()
	if everything || p.needsAll() {
		p.refresh(ctx)
		return
	}
	if all, err := p.load(ctx, names); err == nil {
		p.publish(all, nil)
	}
}

// needsAll tells that a change of one key set is a question about others too: nothing is known of them yet, or one of
// them waits for another to give up a URL.
func (p *Publisher) needsAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		return true
	}
	for _, e := range p.entries {
		if e.rejected != nil && e.rejected.Reason == URLConflict {
			return true
		}
	}
	return false
}

// How long to wait before a lost watch is tried again: longer from time to time, unless it had held for a while.
const (
	minRetry   = 100 * time.Millisecond
	maxRetry   = 30 * time.Second
	heldAWhile = time.Minute
)

// watch keeps a watch up. After it was lost something may have changed unseen: hence the request for everything.
func (p *Publisher) watch(ctx context.Context, w keystore.Watcher, pd *pending) {
	var lost atomic.Bool // so that one line is logged per loss, not one per attempt
	changed := func(names ...keystore.Name) {
		if lost.CompareAndSwap(true, false) {
			p.c.Log.Info("the watch on the key sets is back")
		}
		pd.add(names...)
	}
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		began := time.Now()
		err := w.Watch(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if lost.CompareAndSwap(false, true) {
			p.c.Log.Warn("the watch on the key sets was lost; the poll goes on", zap.Error(err))
		}
		if time.Since(began) > heldAWhile {
			wait = minRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			pd.add()
		}
	}
}

// pending collects what the watch reports until the loop takes it.
type pending struct {
	wake chan struct{}

	mu         sync.Mutex
	names      map[keystore.Name]bool
	everything bool
}

func (pd *pending) add(names ...keystore.Name) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.names == nil {
		pd.names = map[keystore.Name]bool{}
	}
	for _, n := range names {
		pd.names[n] = true
	}
	pd.everything = pd.everything || len(names) == 0
	select {
	case pd.wake <- struct{}{}:
	default:
	}
}

func (pd *pending) drain() ([]keystore.Name, bool) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	names, everything := slices.Sorted(maps.Keys(pd.names)), pd.everything
	pd.names, pd.everything = nil, false
	return names, everything
}
