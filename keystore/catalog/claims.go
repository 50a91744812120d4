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

// TakenError reports that a key set in use has the name or an issuer URL of a new one.
type TakenError struct {
	By      keystore.Name
	Issuers []keystore.IssuerURL // of By, if it has the name; else nil
}

func (e *TakenError) Error() string {
	if e.Issuers == nil {
		return fmt.Sprintf("key set %q has that issuer URL already", e.By)
	}
	var urls []string
	for _, u := range e.Issuers {
		urls = append(urls, u.String())
	}
	return fmt.Sprintf("key set %q exists already (%s)", e.By, strings.Join(urls, ", "))
}

// TombstoneError reports that a new key set's name belongs to a withdrawn one that cannot be reopened for it: the
// tombstone has an issuer URL that the new key set has not (URL), or another withdrawn key set had one of its URLs, too
// (Other).
type TombstoneError struct {
	Name  keystore.Name
	URL   keystore.IssuerURL // zero if Other is set
	Other keystore.Name
}

func (e *TombstoneError) Error() string {
	if e.Other != "" {
		return fmt.Sprintf("both %q and %q had such a URL before they were withdrawn", e.Name, e.Other)
	}
	return fmt.Sprintf("the name %q belongs to a withdrawn key set with the issuer URL %s, which must stay on record", e.Name, e.URL)
}

// ErrReuse reports that an issuer URL belonged to a key set that was withdrawn.
var ErrReuse = errors.New("the issuer URL belonged to a key set that was withdrawn; relying parties may still trust what it stood for")

// UnreadError reports that a document which cannot be read has, or may have, an issuer URL of a new key set. Once it is
// mended, a publisher that starts serves neither of the two.
type UnreadError struct {
	Name   keystore.Name
	Err    error
	Broken bool // the document could be read and is no key set
	HasURL bool // it is known to have the URL, which no option permits
}

func (e *UnreadError) Error() string {
	switch {
	case e.HasURL:
		return fmt.Sprintf("key set %q, which is broken, has that issuer URL already: %v", e.Name, e.Err)
	case e.Broken:
		return fmt.Sprintf("key set %q is broken, so that it is unknown whether it has that issuer URL: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("key set %q cannot be read, so that it is unknown whether it has that issuer URL: %v", e.Name, e.Err)
}

func (e *UnreadError) Unwrap() error { return e.Err }

// claims are the stored key sets that have, or had, the name or a URL of a new one.
type claims struct {
	same      *keystore.KeySet // of the same name
	inUse     []keystore.KeySet
	withdrawn []keystore.KeySet
}

// CheckFree returns an error if a key set may not be added unless [AddOptions] permit it: a [*TakenError], a [*TombstoneError],
// [ErrReuse], an [*UnreadError] of a document that is known to have a URL, or that of the document with its name, which cannot be
// read. Other documents that cannot be read are in nobody's way: a publisher goes on with the key set that it serves.
func (c Contents) CheckFree(spec keystore.Spec) error {
	_, err := c.claims(spec, false)
	return err
}

// claims returns the key sets that have, or had, the name or a URL of a new one, or an error as CheckFree does.
func (c Contents) claims(spec keystore.Spec, reuse bool) (claims, error) {
	if err, unread := c.Unread[spec.Name]; unread {
		return claims{}, fmt.Errorf("add key set %q: it exists already, and %w", spec.Name, err)
	}
	var found claims
	for _, s := range c.Sets {
		switch {
		case s.Name() == spec.Name:
			found.same = &s
		case !overlap(s.Issuers(), spec.Issuers):
		case s.Withdrawn():
			found.withdrawn = append(found.withdrawn, s)
		default:
			found.inUse = append(found.inUse, s)
		}
	}
	if err := found.check(spec, reuse); err != nil {
		return found, err
	}
	return found, c.CheckUnread(spec.Issuers, true)
}

func (c claims) check(spec keystore.Spec, reuse bool) error {
	switch {
	case len(c.inUse) > 0:
		return &TakenError{By: c.inUse[0].Name()}
	case c.same == nil && len(c.withdrawn) == 0:
		return nil
	case c.same != nil && !c.same.Withdrawn():
		return &TakenError{spec.Name, c.same.Issuers()}
	case c.same != nil:
		for _, u := range c.same.Issuers() {
			if !slices.Contains(spec.Issuers, u) {
				return &TombstoneError{Name: spec.Name, URL: u}
			}
		}
		if len(c.withdrawn) > 0 {
			return &TombstoneError{Name: spec.Name, Other: c.withdrawn[0].Name()}
		}
	}
	if !reuse {
		return ErrReuse
	}
	return nil
}

// gone returns what may never come back under a URL that is given out again. A line about one of the given keys counts only if the
// key set had the key: whoever may write one could else keep another's keys out.
func (c claims) gone(keys []keystore.VerificationKey) []keystore.Gone {
	var lines []keystore.Gone
	for _, s := range c.withdrawn {
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

// CheckUnread returns an [*UnreadError] for URLs that an unread document has, and for those that it may have unless that is permitted.
func (c Contents) CheckUnread(urls []keystore.IssuerURL, permitted bool) error {
	for _, n := range slices.Sorted(maps.Keys(c.Unread)) {
		err := c.Unread[n]
		broken, isBroken := errors.AsType[*keystore.BrokenError](err)
		switch {
		case !isBroken && !permitted:
			return &UnreadError{Name: n, Err: err}
		case !isBroken:
		case overlap(broken.Issuers, urls):
			return &UnreadError{Name: n, Err: broken.Err, Broken: true, HasURL: true}
		case broken.Issuers == nil && !permitted:
			return &UnreadError{Name: n, Err: broken.Err, Broken: true}
		}
	}
	return nil
}

// Shared is a key that a key set is to get and that another one in use publishes. Subjects are unique in one cluster only,
// so two issuers with one key can speak for each other.
type Shared struct {
	Key keystore.KeyID // in the other key set
	In  keystore.Name
}

// RevokedError reports that a key which a key set is to get was revoked in another one, so that it may be in wrong hands.
type RevokedError struct {
	Key  keystore.KeyID // as it was given
	In   keystore.Name
	Line keystore.Gone // of In
}

func (e *RevokedError) Error() string {
	as := ""
	if e.Line.ID != e.Key {
		as = fmt.Sprintf(" as %s", e.Line.ID)
	}
	return fmt.Sprintf("key %s was revoked in key set %q%s (at %s), so it may be in wrong hands", e.Key, e.In, as, e.Line.At.UTC().Format(time.RFC3339))
}

// CheckKeys compares keys that the key set n is to get with those of all others, by their material. It returns the keys that
// others publish, and a [*RevokedError] for one that another, in use or withdrawn, had and has revoked, unless that is permitted.
// What n publishes already is not in question, and what n has revoked itself no transition lets back.
func (c Contents) CheckKeys(n keystore.Name, keys []keystore.VerificationKey, permitted bool) ([]Shared, error) {
	given := map[keystore.Fingerprint]keystore.KeyID{}
	for _, k := range keys {
		given[k.Fingerprint()] = k.ID()
	}
	var shared []Shared
	for _, s := range c.Sets {
		if s.Name() == n {
			continue
		}
		for _, k := range s.Keys() {
			if _, is := given[k.Fingerprint()]; is && !s.Withdrawn() {
				shared = append(shared, Shared{k.ID(), s.Name()})
			}
		}
	}
	if known, _ := c.revoked(n, keys); len(known) > 0 && !permitted {
		return shared, known[0]
	}
	return shared, nil
}

// Doubts returns the keys that another key set says it has revoked although its history does not tell that it ever had them.
func (c Contents) Doubts(n keystore.Name, keys []keystore.VerificationKey) []*RevokedError {
	_, doubts := c.revoked(n, keys)
	return doubts
}

// revoked returns the keys, but for those that n publishes, that others had and revoked, and those that others say they revoked.
func (c Contents) revoked(n keystore.Name, keys []keystore.VerificationKey) (known, doubts []*RevokedError) {
	given := map[keystore.Fingerprint]keystore.KeyID{}
	for _, k := range keys {
		given[k.Fingerprint()] = k.ID()
	}
	if i := slices.IndexFunc(c.Sets, func(s keystore.KeySet) bool { return s.Name() == n }); i >= 0 && !c.Sets[i].Withdrawn() {
		for _, k := range c.Sets[i].Keys() {
			delete(given, k.Fingerprint())
		}
	}
	for _, s := range c.Sets {
		for _, g := range s.Gone() {
			f, _ := g.Material()
			id, is := given[f]
			switch e := (&RevokedError{id, s.Name(), g}); {
			case !is || g.Why != keystore.Revoked || s.Name() == n:
			case had(s, g.ID):
				known = append(known, e)
			default:
				doubts = append(doubts, e)
			}
		}
	}
	return known, doubts
}

// overlap compares what requests are looked up by, host and path, not the strings.
func overlap(some, others []keystore.IssuerURL) bool {
	return slices.ContainsFunc(some, func(u keystore.IssuerURL) bool { return slices.ContainsFunc(others, u.Overlaps) })
}
