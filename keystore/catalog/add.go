package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// author returns who changed a key set last, as far as it is recorded.
func author(s keystore.KeySet) string {
	if h := s.History(); len(h) > 0 {
		return cmp.Or(h[len(h)-1].By, "somebody")
	}
	return "somebody"
}

// Added is what [Add] did, and what the one who asked for it should know.
type Added struct {
	KeySet keystore.KeySet
	Unread []keystore.Name // documents that could not be read, and may have the URL or the keys
	Shared []Shared
}

// AddOptions say who adds a key set, when and why, and what somebody permits who knows more than the store.
type AddOptions struct {
	Change  keystore.Change
	Reuse   bool // a URL of a withdrawn key set is given out again; what is gone there stays gone
	Revoked bool // a key may have been revoked in another key set
}

// Add stores a new key set, or reopens a withdrawn one of the same name. Besides the errors of [Contents.CheckFree]
// and [Contents.CheckKeys] it returns a [Collision] error when another key set got one of the URLs at the same time. Unread and Shared
// are set as soon as they are known, also when the store then fails.
func Add(ctx context.Context, st *keystore.Store, spec keystore.Spec, o AddOptions) (Added, error) {
	c, err := ReadAll(ctx, st)
	if err != nil {
		return Added{}, err
	}
	return c.Add(ctx, st, spec, o)
}

// Add is the function [Add] for who adds several key sets to what was read. c then has the new one too, and whatever else came in.
func (c *Contents) Add(ctx context.Context, st *keystore.Store, spec keystore.Spec, o AddOptions) (Added, error) {
	earlier, err := c.earlier(spec, o.Reuse)
	if err != nil {
		return Added{}, err
	}
	added := Added{Unread: slices.Sorted(maps.Keys(c.Unread))}
	if added.Shared, err = c.CheckKeys(spec.Name, spec.Keys, o.Revoked); err != nil {
		return added, err
	}
	if len(earlier) > 0 && earlier[0].Name() == spec.Name {
		added.KeySet, err = keystore.Update(ctx, st, spec.Name, func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Reopen(o.Change, spec)
		})
	} else {
		spec.Gone = remains(earlier, spec.Keys)
		if added.KeySet, err = keystore.New(o.Change, spec); err == nil {
			err = keystore.Create(ctx, st, added.KeySet)
		}
	}
	if err != nil {
		return added, err
	}
	return added, c.checkAlone(ctx, st, added.KeySet)
}

// checkAlone looks at a store once more after s was added to it. Two people who add one URL under two names at one
// time both find it free. Only what came in since c was read is read, and c has it then.
func (c *Contents) checkAlone(ctx context.Context, r keystore.Reader, s keystore.KeySet) error {
	fresh, err := c.refresh(ctx, r)
	if err != nil {
		return fmt.Errorf("key set %q is stored, but whether another one got its issuer URL at the same time is unknown: %w", s.Name(), err)
	}
	for _, other := range fresh {
		if other.Name() != s.Name() && !other.Withdrawn() && overlap(other.Issuers(), s.Issuers()) {
			return errorf(Collision, s.Name(), "key set %q is stored, and so is %q, which got the same issuer URL at the same time (by %s): "+
				"keypostd goes on with the one that it serves already, and with neither after a restart", s.Name(), other.Name(), author(other))
		}
	}
	return nil
}
