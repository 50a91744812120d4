package install

import (
	"context"
	"slices"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// StillPublished is an issuer that nothing in the cloud trusts any more, and whose keys other accounts and clouds may still need.
type StillPublished struct {
	URL    string
	KeySet string // that publishes it, if the key store has one
	Signs  bool   // a key of KeySet is active: a cluster may sign with it
	Asked  bool   // the key store could be asked, so that an empty KeySet means that it publishes nothing
}

// StillPublished looks for the key sets of issuers in the store.
func (r *Run) StillPublished(ctx context.Context, urls []string) []StillPublished {
	var all []StillPublished
	for _, url := range urls {
		s, asked := r.publishedBy(ctx, url)
		signs := slices.ContainsFunc(s.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active })
		all = append(all, StillPublished{URL: url, KeySet: string(s.Name()), Signs: signs, Asked: asked})
	}
	return all
}

// publishedBy returns the key set with an issuer URL, the zero one if there is none, and whether the store could be asked.
func (r *Run) publishedBy(ctx context.Context, url string) (s keystore.KeySet, asked bool) {
	if r.Store.Open == nil {
		return s, false
	}
	c, err := r.ReadStore(ctx)
	if err != nil {
		return s, false
	}
	s, found := c.InUse(url)
	return s, found || len(c.Unread) == 0
}

// ReadStore reads the store that was given. The error of one that is not there is [fs.ErrNotExist].
func (r *Run) ReadStore(ctx context.Context) (catalog.Contents, error) {
	defer r.During("still reading the key store")()
	st, err := r.Store.Open(ctx)
	if err != nil {
		return catalog.Contents{}, err
	}
	return catalog.ReadAll(ctx, st)
}
