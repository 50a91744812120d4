// Package catalog answers questions about the key sets of a whole store: which one has an issuer URL, which others
// have it, whether it may be given out again, which key a prefix means, and what two versions of a key set disagree about.
// It promises not to guess: where two key sets could be meant, or one that cannot be read may matter, it returns an
// error whose fields say so.
//
// Nothing here keeps two writers from adding one URL under two names at the same time, since a store writes one
// document and knows no other; [Add] looks again after it has written and reports that.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
)

// Contents are the key sets of a store at one moment.
type Contents struct {
	Revisions map[keystore.Name]keystore.Revision // of every document that is stored
	Sets      []keystore.KeySet                   // in order of their names
	Unread    map[keystore.Name]error             // documents that are broken, cannot be opened (keystore.OfDocument), or are listed and not there
}

// ReadAll loads every key set of a store, but for those of some names. Trouble of one document stands in Unread; trouble of
// the store is an error.
func ReadAll(ctx context.Context, r keystore.Reader, but ...keystore.Name) (Contents, error) {
	var c Contents
	_, err := c.refresh(ctx, r, but...)
	return c, err
}

// parallel is how many key sets are read at once: in a store that is far away nearly all of the time is waiting.
const parallel = 8

// refresh loads what is stored at another revision than c has, and returns the key sets among that.
func (c *Contents) refresh(ctx context.Context, r keystore.Reader, but ...keystore.Name) ([]keystore.KeySet, error) {
	revisions, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	known := func(n keystore.Name) bool { return slices.Contains(but, n) || c.Revisions[n] == revisions[n] }
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(revisions)), known)
	sets, failed := make([]keystore.KeySet, len(names)), make([]error, len(names))
	g, loading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, n := range names {
		g.Go(func() error {
			s, _, err := r.Load(loading, n)
			sets[i], failed[i] = s, err
			if err != nil && !errors.Is(err, keystore.ErrNotFound) && !keystore.OfDocument(err) { // an outage, which the next load would meet as well
				return fmt.Errorf("load key set %q: %w", n, err)
			}
			return nil
		})
	}
	if outage := g.Wait(); ctx.Err() != nil || outage != nil {
		return nil, cmp.Or(ctx.Err(), outage)
	}
	if c.Revisions = revisions; c.Unread == nil {
		c.Unread = map[keystore.Name]error{}
	}
	c.Sets = slices.DeleteFunc(c.Sets, func(s keystore.KeySet) bool { return slices.Contains(names, s.Name()) })
	var fresh []keystore.KeySet
	for i, n := range names {
		if delete(c.Unread, n); failed[i] == nil {
			fresh = append(fresh, sets[i])
		} else {
			c.Unread[n] = failed[i]
		}
	}
	c.Sets = append(c.Sets, fresh...)
	slices.SortFunc(c.Sets, func(a, b keystore.KeySet) int { return cmp.Compare(a.Name(), b.Name()) })
	return fresh, nil
}
