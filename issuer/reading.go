package issuer

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// readTime bounds a listing, and the reading of all that has changed: a store that hangs costs it once, and not once for each of
// ten thousand key sets. What was not read by then counts as unreadable until the next refresh.
const readTime = 30 * time.Second

// found is one key set as the store returned it.
type found struct {
	*lastgood.Candidate
	revision keystore.Revision
	version  *version // nil when it could not be read
	absent   bool
}

// take reads key sets, several at a time, and publishes them in one batch. listed is nil when they are not all that a complete
// listing does not have. The error is that of ctx, and then nothing is concluded: an interrupted reading would look like a thousand
// unreadable key sets.
func (p *Publisher) take(ctx context.Context, names []keystore.Name, listed map[keystore.Name]keystore.Revision) error {
	limited, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	all := make([]found, len(names))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0) + 2)
	for i, n := range names {
		g.Go(func() error { all[i] = p.read(limited, n); return nil })
	}
	_ = g.Wait() // every result has its own error
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range all {
		// What could not be read has no revision of its own; an older one than it was read at only costs a reading.
		if rev, ok := listed[all[i].Name]; ok && (all[i].version == nil || all[i].revision == rev) {
			all[i].revision = rev // of two equal texts one is enough
		}
	}
	p.publish(all, listed)
	return nil
}

// read reads one key set, which may take as long as the document is large.
func (p *Publisher) read(ctx context.Context, n keystore.Name) found {
	s, rev, err := p.c.Source.Load(ctx, n)
	var v *version
	if err == nil {
		v, err = newVersion(s, p.c.Cache)
	}
	if err != nil {
		rejected := lastgood.RejectError(err)
		return found{Candidate: &lastgood.Candidate{Name: n, Rejected: rejected}, revision: rev, absent: rejected == nil}
	}
	return found{Candidate: &lastgood.Candidate{Name: n, Version: &v.Summary, Rejected: p.admission.Admit(s)}, revision: rev, version: v}
}
