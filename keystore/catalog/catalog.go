// Package catalog answers questions about the key sets of a whole store: which one has an issuer URL, who else claims
// it, whether it may be given out again, which key a prefix means, and what two versions of a key set disagree about.
// It promises not to guess: where two key sets could be meant, or one that cannot be read may matter, it returns an
// error whose fields say so.
//
// Nothing here keeps two writers from adding one URL under two names at the same time, since a store writes one
// document and knows no other; [Add] looks again after it has written and reports that.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Contents are the key sets of a store at one moment.
type Contents struct {
	Revisions map[keystore.Name]keystore.Revision // of every document that is stored
	Sets      []keystore.KeySet                   // in order of their names
	Unread    map[keystore.Name]error             // documents that are broken or cannot be opened (keystore.OfDocument)
}

// ReadAll loads every key set of a store. Trouble of one document stands in Unread; trouble of the store is an error.
func ReadAll(ctx context.Context, r keystore.Reader) (Contents, error) {
	return readChanged(ctx, r, nil)
}

// readChanged is ReadAll without the key sets whose revision is the one in known.
func readChanged(ctx context.Context, r keystore.Reader, known map[keystore.Name]keystore.Revision) (Contents, error) {
	revisions, err := r.List(ctx)
	if err != nil {
		return Contents{}, err
	}
	c := Contents{Revisions: revisions, Unread: map[keystore.Name]error{}}
	absent := map[keystore.Name]error{}
	for _, n := range slices.Sorted(maps.Keys(revisions)) {
		if was, listed := known[n]; listed && was == revisions[n] {
			continue
		}
		s, _, err := r.Load(ctx, n)
		switch {
		case ctx.Err() != nil:
			return Contents{}, ctx.Err()
		case err == nil:
			c.Sets = append(c.Sets, s)
		case errors.Is(err, keystore.ErrNotFound):
			absent[n] = err
		case keystore.OfDocument(err):
			c.Unread[n] = err
		default: // an outage, which the next load would meet as well
			return Contents{}, fmt.Errorf("load key set %q: %w", n, err)
		}
	}
	return c, c.resolve(ctx, r, absent)
}

// resolve drops documents that were removed after they were listed. One that is still listed and never found, such as
// a link that leads nowhere, counts as unread.
func (c Contents) resolve(ctx context.Context, r keystore.Reader, absent map[keystore.Name]error) error {
	if len(absent) == 0 {
		return nil
	}
	now, err := r.List(ctx)
	if err != nil {
		return err
	}
	for n, err := range absent {
		if _, listed := now[n]; listed {
			c.Unread[n] = err
		} else {
			delete(c.Revisions, n)
		}
	}
	return nil
}
