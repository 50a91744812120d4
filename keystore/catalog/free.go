package catalog

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// CheckFree returns an error if a key set may not be added unless [AddOptions] permit it. It has the kind [Taken],
// [Tombstone] or [Reuse], of the kind [Unread] for a document that is known to have a URL, or that of the document with its
// name, which cannot be read. Other documents that cannot be read are in nobody's way: a publisher goes on with the key set
// that it serves.
func (c Contents) CheckFree(spec keystore.Spec) error {
	_, err := c.earlier(spec, false)
	return err
}

// earlier returns the withdrawn key sets that had the name or a URL of a new one, that with its name first, or an error as
// CheckFree does.
func (c Contents) earlier(spec keystore.Spec, reuse bool) ([]keystore.KeySet, error) {
	if err, unread := c.Unread[spec.Name]; unread {
		return nil, fmt.Errorf("add key set %q: it exists already, and %w", spec.Name, err)
	}
	var had []keystore.KeySet
	for _, s := range c.Sets {
		switch same := s.Name() == spec.Name; {
		case same && !s.Withdrawn():
			return nil, errorf(Taken, s.Name(), "key set %q exists already (%s)", s.Name(), urlsOf(s))
		case same:
			had = slices.Insert(had, 0, s)
		case !overlap(s.Issuers(), spec.Issuers):
		case s.Withdrawn():
			had = append(had, s)
		default:
			return nil, errorf(Taken, s.Name(), "key set %q has that issuer URL already", s.Name())
		}
	}
	switch {
	case len(had) == 0:
		return nil, c.checkUnread(spec.Issuers)
	case had[0].Name() == spec.Name:
		for _, u := range had[0].Issuers() {
			if !slices.Contains(spec.Issuers, u) {
				return nil, errorf(Tombstone, spec.Name, "the name %q belongs to a withdrawn key set with the issuer URL %s, which must stay on record", spec.Name, u)
			}
		}
		if len(had) > 1 {
			return nil, errorf(Tombstone, spec.Name, "both %q and %q had such a URL before they were withdrawn", spec.Name, had[1].Name())
		}
	}
	if !reuse {
		return nil, errorf(Reuse, had[0].Name(), "the issuer URL belonged to a key set that was withdrawn; relying parties may still trust what it stood for")
	}
	return had, c.checkUnread(spec.Issuers)
}

func urlsOf(s keystore.KeySet) string {
	var urls []string
	for _, u := range s.Issuers() {
		urls = append(urls, u.String())
	}
	return strings.Join(urls, ", ")
}

// remains returns what may never come back under a URL that is given out again. A line about one of the given keys counts
// only if the key set had the key: anyone who may write one could else keep another's keys out.
func remains(withdrawn []keystore.KeySet, keys []keystore.VerificationKey) (lines []keystore.Gone) {
	for _, s := range withdrawn {
		lines = append(lines, slices.DeleteFunc(s.Remains(), func(g keystore.Gone) bool {
			return !had(s, g.ID) && slices.ContainsFunc(keys, g.Bars)
		})...)
	}
	return lines
}

// had reports whether a key set had a key that it says is gone, by its history. The line in gone by itself shows nothing: public keys are
// public, and anybody may write one down. A history that has lost its oldest lines shows nothing either, and then the line counts.
func had(s keystore.KeySet, id keystore.KeyID) bool {
	return len(s.History()) >= keystore.KeptHistory || slices.ContainsFunc(s.History(), func(e keystore.Event) bool {
		return strings.Contains("; "+e.Keys, "; "+string(id)+": ")
	})
}

// checkUnread returns an [Unread] error for URLs that a broken document is known to have. Once it is mended, a publisher that
// starts serves neither of the two.
func (c Contents) checkUnread(urls []keystore.IssuerURL) error {
	for _, n := range slices.Sorted(maps.Keys(c.Unread)) {
		if broken, is := errors.AsType[*keystore.BrokenError](c.Unread[n]); is && overlap(broken.Issuers, urls) {
			return &Error{Kind: Unread, Names: []keystore.Name{n}, Err: broken,
				Message: fmt.Sprintf("key set %q, which is broken, has that issuer URL already: %v", n, broken.Err)}
		}
	}
	return nil
}

// Shared is a key that a key set is to get and that another one has. Subjects are unique in one cluster only, so two issuers
// with one key can speak for each other.
type Shared struct {
	Key keystore.KeyID // in the other key set
	In  keystore.Name
}

// CheckKeys compares keys that the key set n is to get with those of all others, by their material. It returns the keys that
// others in use publish, and a [Revoked] error for one that another, in use or withdrawn, had and has revoked, unless that is
// permitted. Of what n publishes already no revocation is in question, and what n has revoked itself no transition lets back.
func (c Contents) CheckKeys(n keystore.Name, keys []keystore.VerificationKey, permitted bool) (shared []Shared, refused error) {
	given, fresh := map[keystore.Fingerprint]keystore.KeyID{}, map[keystore.Fingerprint]bool{}
	for _, k := range keys {
		given[k.Fingerprint()], fresh[k.Fingerprint()] = k.ID(), true
	}
	others := slices.Clone(c.Sets)
	if i := slices.IndexFunc(others, func(s keystore.KeySet) bool { return s.Name() == n }); i >= 0 {
		for _, k := range others[i].Keys() {
			fresh[k.Fingerprint()] = fresh[k.Fingerprint()] && others[i].Withdrawn()
		}
		others = slices.Delete(others, i, i+1)
	}
	for _, s := range others {
		for _, k := range s.Keys() {
			if _, is := given[k.Fingerprint()]; is && !s.Withdrawn() {
				shared = append(shared, Shared{k.ID(), s.Name()})
			}
		}
		for _, g := range s.Gone() {
			if fresh[g.Fingerprint] && g.Why == keystore.Revoked && had(s, g.ID) && !permitted && refused == nil {
				refused = errorf(Revoked, s.Name(), "key %s was revoked in key set %q as %s (at %s), so it may be in wrong hands",
					given[g.Fingerprint], s.Name(), g.ID, g.At.UTC().Format(time.RFC3339))
			}
		}
	}
	return shared, refused
}

// overlap compares what requests are looked up by, host and path, not the strings.
func overlap(some, others []keystore.IssuerURL) bool {
	return slices.ContainsFunc(some, func(u keystore.IssuerURL) bool {
		return slices.ContainsFunc(others, func(o keystore.IssuerURL) bool { return o.Route() == u.Route() })
	})
}
