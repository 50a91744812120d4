package watch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// WentBack is a key set of which the store holds an older version than this watch, or an earlier run of it, has read: a backup
// was restored, or an old manifest applied.
type WentBack struct {
	KeySet keystore.Name
	observation.Older
}

// mark is what is remembered of a key set.
type mark struct {
	newest *observation.Compared // that was ever read; nil if nothing counts
	older  *observation.Older    // how the version that was read last is older; nil if it is not
}

// WentBack returns the key sets of which the store holds an older version than before, in order.
func (w *Watcher) WentBack() (all []WentBack) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(w.marks)) {
		if older := w.marks[n].older; older != nil {
			all = append(all, WentBack{n, *older})
		}
	}
	return all
}

// compareMarks compares each version that was read from the store with the newest one before, where that was not done yet. Where
// looks are recorded the newest is recorded too, and outlives this process.
func (w *Watcher) compareMarks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copiesTime)
	defer cancel()
	w.mu.Lock()
	marks := maps.Clone(w.marks)
	w.mu.Unlock()
	var mu sync.Mutex // guards failed
	var failed error
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range w.roster.unmarked() {
		g.Go(func() error {
			is, err := w.compareMark(ctx, marks[s.Name()], s)
			w.takeMark(s.Name(), is)
			if err == nil {
				w.roster.marked(s)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed = err
			return nil
		})
	}
	_ = g.Wait() // a record that fails is tried again
	if failed != nil && ctx.Err() == nil {
		w.c.Log.Warn("which versions of key sets were read cannot be recorded; it is tried again", zap.Error(failed))
	}
}

// compareMark compares one version that was read. With an error the newest of earlier runs is not known.
func (w *Watcher) compareMark(ctx context.Context, was mark, s keystore.KeySet) (is mark, err error) {
	is.newest = observation.NewestRead(was.newest, s)
	if w.c.Records != nil {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		var r observation.Record
		r, err = w.c.Records.MarkRead(ctx, observation.Place{Issuer: s.Issuers()[0].String(), Vantage: w.c.Vantage}, s)
		if err == nil && r.Newest != nil && (was.newest == nil || r.Newest.Generation > was.newest.Generation) {
			is.newest = r.Newest
		}
	}
	is.older = observation.Record{Newest: is.newest}.Older(s)
	return is, err
}

// takeMark takes over what was found, and logs what has changed.
func (w *Watcher) takeMark(n keystore.Name, is mark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.marks[n]
	w.marks[n] = is
	logOlder(w.c.Log, n, was.older, is.older)
}
