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

// CheckFree returns an error if a key set may not be added unless [AddOptions] permit it. It is of the kind [Taken],
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
		return nil, c.CheckUnread(spec.Issuers, true)
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
	return had, c.CheckUnread(spec.Issuers, true)
}

func urlsOf(s keystore.KeySet) string {
	var urls []string
	for _, u := range s.Issuers() {
		urls = append(urls, u.String())
	}
	return strings.Join(urls, ", ")
}

// remains returns what may never come back under a URL that is given out again. A line about one of the given keys counts
// only if the key set had the key: whoever may write one could else keep another's keys out.
func remains(withdrawn []keystore.KeySet, keys []keystore.VerificationKey) (lines []keystore.Gone) {
	for _, s := range withdrawn {
		lines = append(lines, slices.DeleteFunc(s.Remains(), func(g keystore.Gone) bool {
			return !had(s, g.ID) && slices.ContainsFunc(keys, g.Bars)
		})...)
	}
	return lines
}

// had reports whether the history of a key set tells that it had a key. Its line in gone alone shows nothing: public keys are
// public, and anybody may write one down.
func had(s keystore.KeySet, id keystore.KeyID) bool {
	return slices.ContainsFunc(s.History(), func(e keystore.Event) bool {
		return strings.Contains("; "+e.Keys, "; "+string(id)+": ")
	})
}

// CheckUnread returns an [Unread] error for URLs that an unread document has, and for those that it may have unless that is
// permitted. Once the document is mended, a publisher that starts serves neither of the two.
func (c Contents) CheckUnread(urls []keystore.IssuerURL, permitted bool) error {
	for _, n := range slices.Sorted(maps.Keys(c.Unread)) {
		err := c.Unread[n]
		broken, isBroken := errors.AsType[*keystore.BrokenError](err)
		found := &Error{Kind: Unread, Names: []keystore.Name{n}, Err: err}
		switch {
		case isBroken && overlap(broken.Issuers, urls):
			found.Message = fmt.Sprintf("key set %q, which is broken, has that issuer URL already: %v", n, broken.Err)
		case permitted || isBroken && broken.Issuers != nil:
			continue
		case isBroken:
			found.Message = fmt.Sprintf("key set %q is broken, so that it is unknown whether it has that issuer URL: %v", n, broken.Err)
		default:
			found.Message = fmt.Sprintf("key set %q cannot be read, so that it is unknown whether it has that issuer URL: %v", n, err)
		}
		return found
	}
	return nil
}

// Shared is a key that a key set is to get and that another one has. Subjects are unique in one cluster only, so two issuers
// with one key can speak for each other.
type Shared struct {
	Key keystore.KeyID // in the other key set; of one that is in doubt, as it was given
	In  keystore.Name
}

// CheckKeys compares keys that the key set n is to get with those of all others, by their material. It returns the keys that
// others in use publish, and a [Revoked] error for one that another, in use or withdrawn, had and has revoked, unless that is
// permitted. What n publishes already is not in question, and what n has revoked itself no transition lets back.
func (c Contents) CheckKeys(n keystore.Name, keys []keystore.VerificationKey, permitted bool) ([]Shared, error) {
	given := byMaterial(keys)
	var shared []Shared
	for _, s := range c.Sets {
		for _, k := range s.Keys() {
			if _, is := given[k.Fingerprint()]; is && s.Name() != n && !s.Withdrawn() {
				shared = append(shared, Shared{k.ID(), s.Name()})
			}
		}
	}
	var refused error
	c.eachRevoked(n, given, func(s keystore.KeySet, id keystore.KeyID, g keystore.Gone) {
		if permitted || refused != nil || !had(s, g.ID) {
			return
		}
		as := ""
		if g.ID != id {
			as = fmt.Sprintf(" as %s", g.ID)
		}
		refused = errorf(Revoked, s.Name(), "key %s was revoked in key set %q%s (at %s), so it may be in wrong hands", id, s.Name(), as, g.At.UTC().Format(time.RFC3339))
	})
	return shared, refused
}

// Doubts returns the keys that another key set says it has revoked although its history does not tell that it ever had them.
func (c Contents) Doubts(n keystore.Name, keys []keystore.VerificationKey) (doubts []Shared) {
	c.eachRevoked(n, byMaterial(keys), func(s keystore.KeySet, id keystore.KeyID, g keystore.Gone) {
		if !had(s, g.ID) {
			doubts = append(doubts, Shared{id, s.Name()})
		}
	})
	return doubts
}

func byMaterial(keys []keystore.VerificationKey) map[keystore.Fingerprint]keystore.KeyID {
	given := map[keystore.Fingerprint]keystore.KeyID{}
	for _, k := range keys {
		given[k.Fingerprint()] = k.ID()
	}
	return given
}

// eachRevoked calls found for each line of another key set than n that says it revoked one of the keys. It forgets those that
// n publishes.
func (c Contents) eachRevoked(n keystore.Name, given map[keystore.Fingerprint]keystore.KeyID, found func(keystore.KeySet, keystore.KeyID, keystore.Gone)) {
	for _, s := range c.Sets {
		if s.Name() == n && !s.Withdrawn() {
			for _, k := range s.Keys() {
				delete(given, k.Fingerprint())
			}
		}
	}
	for _, s := range c.Sets {
		for _, g := range s.Gone() {
			if id, is := given[g.Fingerprint]; is && g.Why == keystore.Revoked && s.Name() != n {
				found(s, id, g)
			}
		}
	}
}

// overlap compares what requests are looked up by, host and path, not the strings.
func overlap(some, others []keystore.IssuerURL) bool {
	return slices.ContainsFunc(some, func(u keystore.IssuerURL) bool {
		return slices.ContainsFunc(others, func(o keystore.IssuerURL) bool { return o.Route() == u.Route() })
	})
}
