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
	c, read := r.stored(ctx)
	s, found := c.InUse(url)
	return s, found || read && len(c.Unread) == 0
}

// stored returns what the store has, and whether it could be asked.
func (r *Run) stored(ctx context.Context) (c catalog.Contents, asked bool) {
	if r.Store.Open == nil {
		return c, false
	}
	c, err := r.ReadStore(ctx)
	return c, err == nil
}

// StillNamed is a key set whose policy names copies of its keys that are gone, so that nobody can upload to them.
type StillNamed struct {
	KeySet keystore.KeySet
	Policy keystore.Policy // that names them no more; without any copy, its reach is not that of copies
}

// StillNamed looks in the store for the key sets in use whose policy names copies that are gone; it returns none if the store
// cannot be read. A key set that cannot be read is passed over: anyone who uploads to all copies says so of it.
func (r *Run) StillNamed(ctx context.Context, gone func(party string) bool) (all []StillNamed) {
	c, _ := r.stored(ctx)
	for _, s := range c.Sets {
		p := s.Policy()
		if s.Withdrawn() || !slices.ContainsFunc(p.Uploads(), gone) {
			continue
		}
		p.RelyingParties = slices.DeleteFunc(slices.Clone(p.RelyingParties), gone)
		if len(p.Uploads()) == 0 {
			p.Reach = ""
		}
		all = append(all, StillNamed{s, p})
	}
	return all
}

// ReadStore reads the store that was given. The error of one that is not there is [fs.ErrNotExist].
func (r *Run) ReadStore(ctx context.Context) (catalog.Contents, error) {
	st, err := r.Store.Open(ctx)
	if err != nil {
		return catalog.Contents{}, err
	}
	return catalog.ReadAll(ctx, st)
}
