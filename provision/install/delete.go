package install

import (
	"context"

	"github.com/keypost/keypost/keystore/catalog"
)

// StillPublished is an issuer that nothing in the cloud trusts any more, and whose keys other accounts and clouds may still need.
type StillPublished struct {
	URL    string
	KeySet string // that publishes it, if the key store has one
	Asked  bool   // the key store could be asked, so that an empty KeySet means that it publishes nothing
}

// StillPublished looks for the key sets of issuers in the store.
func (r *Run) StillPublished(ctx context.Context, urls []string) []StillPublished {
	var all []StillPublished
	for _, url := range urls {
		name, asked := r.publishedBy(ctx, url)
		all = append(all, StillPublished{URL: url, KeySet: name, Asked: asked})
	}
	return all
}

// publishedBy returns the name of the key set with an issuer URL, and whether the store could be asked.
func (r *Run) publishedBy(ctx context.Context, url string) (name string, asked bool) {
	if r.Store.Open == nil {
		return "", false
	}
	defer r.During("still reading the key store")()
	st, err := r.Store.Open(ctx)
	if err != nil {
		return "", false
	}
	c, err := catalog.ReadAll(ctx, st)
	if err != nil {
		return "", false
	}
	if s, found := c.InUse(url); found {
		return string(s.Name()), true
	}
	return "", len(c.Unread) == 0
}
