package replicate

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

// ChangeFeed triggers a refresh when a store may have changed: of everything at intervals of Poll, and of the names that
// the store's watch reports. Poll and Log are required.
type ChangeFeed struct {
	Watcher keystore.Watcher // nil for a store without one
	Poll    time.Duration
	Log     *zap.Logger // gets one line when the watch is lost and one when it is back
}

// batch is how long reports of the watch are collected, so that a checkout of a thousand files causes one refresh.
const batch = 100 * time.Millisecond

// Run calls refresh, one call at a time, until ctx is done: without names for everything, and at once for the first time.
func (f ChangeFeed) Run(ctx context.Context, refresh func(context.Context, ...keystore.Name)) {
	reports := &reports{wake: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	if f.Watcher != nil {
		watching.Go(func() { f.watch(ctx, reports) })
	}
	defer watching.Wait()
	poll := time.NewTicker(f.Poll)
	defer poll.Stop()
	refresh(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			refresh(ctx)
		case <-reports.wake:
			if !sleep(ctx, batch) {
				return
			}
			if names, reported := reports.drain(); reported {
				refresh(ctx, names...)
			}
		}
	}
}

// sleep reports whether the time has passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// watchBackoff is the wait before a lost watch is tried again: short enough that a change is served seconds after
// an outage, long enough not to burden a server that has just started.
const watchBackoff = 500 * time.Millisecond

func (f ChangeFeed) watch(ctx context.Context, r *reports) {
	var lost atomic.Bool // so that one line is logged per loss, not one per attempt
	changed := func(names ...keystore.Name) {
		if lost.CompareAndSwap(true, false) {
			f.Log.Info("the watch on the key sets is back")
		}
		r.add(names...)
	}
	for {
		err := f.Watcher.Watch(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if lost.CompareAndSwap(false, true) {
			f.Log.Warn("the watch on the key sets was lost; the poll goes on", zap.Error(err))
			r.add() // changes in between were not reported
		}
		if !sleep(ctx, watchBackoff) {
			return
		}
	}
}

// reports collects what the watch reports until the loop takes it.
type reports struct {
	wake chan struct{}

	mu         sync.Mutex
	names      map[keystore.Name]bool
	everything bool
}

func (r *reports) add(names ...keystore.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[keystore.Name]bool{}
	}
	for _, n := range names {
		r.names[n] = true
	}
	r.everything = r.everything || len(names) == 0
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// drain returns the reported names, none for everything, and whether there was a report.
func (r *reports) drain() (names []keystore.Name, reported bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, everything := slices.Sorted(maps.Keys(r.names)), r.everything
	r.names, r.everything = nil, false
	if everything {
		return nil, true
	}
	return names, len(names) > 0
}
