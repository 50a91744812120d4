package keystore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Feed says when to look at a store: at everything every Poll, and beside that, where the store is a [Watcher], at
// what its watch reports. Every field is required.
type Feed struct {
	Source Reader
	Poll   time.Duration
	Log    *zap.Logger // gets one line when the watch is lost and one when it is back
}

// batch is how long reports of the watch are collected, so that a checkout of a thousand files is one look.
const batch = 100 * time.Millisecond

// Run calls look, one call at a time, until ctx is done: with no names for everything, first at once. Trouble is never
// a reason to return.
func (f Feed) Run(ctx context.Context, look func(context.Context, ...Name)) {
	reports := &reports{wake: make(chan struct{}, 1)}
	var watching sync.WaitGroup
	if w, ok := WatcherOf(f.Source); ok {
		watching.Go(func() { f.watch(ctx, w, reports) })
	}
	defer watching.Wait()
	poll := time.NewTicker(f.Poll)
	defer poll.Stop()
	look(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			look(ctx)
		case <-reports.wake:
			if !sleep(ctx, batch) {
				return
			}
			if names, reported := reports.drain(); reported {
				look(ctx, names...)
			}
		}
	}
}

// sleep tells that the time has passed and ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// retry is how long to wait before a lost watch is tried again: so short that a change is served within two seconds of
// the end of an outage, long enough for a server that has just come up.
const retry = 500 * time.Millisecond

func (f Feed) watch(ctx context.Context, w Watcher, r *reports) {
	var lost atomic.Bool // so that one line is logged per loss, not one per attempt
	changed := func(names ...Name) {
		if lost.CompareAndSwap(true, false) {
			f.Log.Info("the watch on the key sets is back")
		}
		r.add(names...)
	}
	for {
		err := w.Watch(ctx, changed)
		if ctx.Err() != nil {
			return
		}
		if lost.CompareAndSwap(false, true) {
			f.Log.Warn("the watch on the key sets was lost; the poll goes on", zap.Error(err))
			r.add() // what changed meanwhile was not seen
		}
		if !sleep(ctx, retry) {
			return
		}
	}
}

// reports collects what the watch says until the loop takes it.
type reports struct {
	wake chan struct{}

	mu         sync.Mutex
	names      map[Name]bool
	everything bool
}

func (r *reports) add(names ...Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[Name]bool{}
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
func (r *reports) drain() (names []Name, reported bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, everything := slices.Sorted(maps.Keys(r.names)), r.everything
	r.names, r.everything = nil, false
	if everything {
		return nil, true
	}
	return names, len(names) > 0
}
