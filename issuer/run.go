package issuer

import (
	"context"
	"maps"
	"slices"
	"sync"
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

// take waits for the batch to fill and publishes it, without listing where the watch said what changed.
func (p *Publisher) take(ctx context.Context, pd *pending) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(batch):
	}
	names, everything := pd.drain()
	if everything || p.conflicts() {
		p.refresh(ctx)
		return
	}
	if all, err := p.load(ctx, names); err == nil {
		p.publish(all, nil)
	}
}

// conflicts tells that a key set waits for another to change, so that a change of one is a question about both.
func (p *Publisher) conflicts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.entries {
		if e.rejected != nil && e.rejected.Reason == URLConflict {
			return true
		}
	}
	return false
}

// watch keeps a watch up. After it was lost something may have changed unseen: hence the request for everything.
func (p *Publisher) watch(ctx context.Context, w keystore.Watcher, pd *pending) {
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		err := w.Watch(ctx, pd.add)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			wait = 100 * time.Millisecond
		}
		p.c.Log.Warn("the watch on the key sets was lost; the poll goes on", zap.Error(err), zap.Duration("retrying_in", wait))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
		pd.add()
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
