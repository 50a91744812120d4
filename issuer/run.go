package issuer

import (
	"context"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
)

// Run reads and publishes until ctx is done: by a complete listing every Poll, and beside it by the source's watch,
// where it has one, within a fraction of a second. It returns nil then; trouble is never a reason to return, since
// serving the last good versions goes on.
func (p *Publisher) Run(ctx context.Context) error {
	keystore.Feed{Source: p.c.Source, Poll: p.c.Poll, Log: p.c.Log}.Run(ctx, p.look)
	return nil
}

// look publishes what the watch reports without listing, where that is enough. Before the first complete listing it is
// not: of two key sets with one URL, the one reported first would get it.
func (p *Publisher) look(ctx context.Context, names ...keystore.Name) {
	if len(names) == 0 || p.needsAll() {
		p.refresh(ctx)
		return
	}
	if all, err := p.load(ctx, names); err == nil {
		p.publish(all, nil)
	}
}

// refresh is Refresh where the error has been dealt with: the log and the metrics tell of it.
func (p *Publisher) refresh(ctx context.Context) {
	if err := p.Refresh(ctx); err != nil && ctx.Err() == nil {
		p.c.Log.Debug("refresh", zap.Error(err))
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
