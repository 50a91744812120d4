package issuer

import (
	"context"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
)

// Run reads and publishes until ctx is done: by a complete listing every Poll, and beside it by the source's watch,
// where it has one, within a fraction of a second. It returns for no other reason, since serving the last good versions
// goes on.
func (p *Publisher) Run(ctx context.Context) {
	watcher, _ := keystore.WatcherOf(p.c.Source)
	replicate.ChangeFeed{Watcher: watcher, Poll: p.c.Poll, Log: p.c.Log}.Run(ctx, p.refreshSome)
}

// refreshSome publishes what the watch reports without listing, where that is enough. Before the first complete listing
// it is not: of two key sets with one URL, the one reported first would get it. After that, a listing that fails keeps
// no change of a single key set from being served.
func (p *Publisher) refreshSome(ctx context.Context, names ...keystore.Name) {
	if len(names) == 0 || p.needsAll() {
		if err := p.refresh(ctx); err == nil || len(names) == 0 || p.current.Load().first.IsZero() {
			return
		}
	}
	_ = p.take(ctx, names, nil) // the error is that of ctx
}

// refresh is Refresh for callers that do nothing about an error: the log and the metrics show it.
func (p *Publisher) refresh(ctx context.Context) error {
	err := p.Refresh(ctx)
	if err != nil && ctx.Err() == nil {
		p.c.Log.Debug("refresh", zap.Error(err))
	}
	return err
}

// needsAll reports whether a change of one key set is a question about others too: nothing is known of them yet, or one
// of them waits for another to give up a URL.
func (p *Publisher) needsAll() bool {
	s := p.current.Load()
	for _, e := range s.entries {
		if e.rejected.Is(lastgood.ReasonURLConflict) {
			return true
		}
	}
	return s.first.IsZero()
}
