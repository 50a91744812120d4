package keystore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore/history"
	"github.com/keypost/keypost/keystore/key"
)

// KeySet is the stored unit: the keys behind one or more issuer URLs, their states, and what became of earlier keys.
// It is a value: transitions return a changed copy and never touch the one they were called on.
type KeySet struct {
	name        Name
	labels      map[string]string
	annotations map[string]string
	issuers     []IssuerURL
	keys        []Key    // sorted by key ID
	body        body     // the rest, as the document has it
	unknown     []string // members that this version does not know; Encode would lose them
}

// Event is a line of history: a note for people, not evidence.
type Event = history.Event

// Name returns the key set's name in its store.
func (s KeySet) Name() Name { return s.name }

// Generation counts the changes, from 1.
func (s KeySet) Generation() int64 { return s.body.Generation }

// Issuers returns the issuer URLs; the first is canonical.
func (s KeySet) Issuers() []IssuerURL { return slices.Clone(s.issuers) }

// Keys returns the published keys (next, active, retired), sorted by key ID.
func (s KeySet) Keys() []Key { return slices.Clone(s.keys) }

// Key returns the published key with that ID.
func (s KeySet) Key(id KeyID) (Key, bool) {
	i := s.index(id)
	if i < 0 {
		return Key{}, false
	}
	return s.keys[i], true
}

func (s KeySet) index(id KeyID) int {
	return slices.IndexFunc(s.keys, func(k Key) bool { return k.ID() == id })
}

// Gone returns the keys that have left, oldest first.
func (s KeySet) Gone() []Gone { return slices.Clone(s.body.Gone) }

// GoneLine returns the line in gone with p's key ID or p's material, and whether there is one.
func (s KeySet) GoneLine(p VerificationKey) (Gone, bool) {
	i := slices.IndexFunc(s.body.Gone, func(g Gone) bool { return g.Bars(p) })
	if i < 0 {
		return Gone{}, false
	}
	return s.body.Gone[i], true
}

// RecordsGone reports whether gone has a line with g's key ID, and one with g's material. In a version that a publisher
// takes, every key of the served version is published or recorded as gone, and every key that is gone stays so.
func (s KeySet) RecordsGone(g Gone) bool {
	return slices.ContainsFunc(s.body.Gone, func(line Gone) bool { return line.ID == g.ID }) &&
		slices.ContainsFunc(s.body.Gone, func(line Gone) bool { return line.Fingerprint == g.Fingerprint })
}

// Remains returns the keys that may never be published again under s's issuer URLs: those in gone, and if s is withdrawn
// also those that it still holds.
func (s KeySet) Remains() []Gone {
	lines := s.Gone()
	if !s.Withdrawn() {
		return lines
	}
	for _, k := range s.keys {
		lines = append(lines, goneLine(k, s.body.WithdrawnAt, Removed))
	}
	return lines
}

// Policy returns a copy of the declared lifetimes.
func (s KeySet) Policy() Policy { return s.body.Policy.Clone() }

// History returns the recorded changes, oldest first.
func (s KeySet) History() []Event { return slices.Clone(s.body.History) }

// WithdrawnAt returns when the key set was withdrawn; zero while it is in use.
func (s KeySet) WithdrawnAt() time.Time { return s.body.WithdrawnAt }

// Withdrawn reports whether the key set is withdrawn: its documents are served no more.
func (s KeySet) Withdrawn() bool { return !s.body.WithdrawnAt.IsZero() }

// Dev reports whether this is a development key set, which only a server in development mode serves.
func (s KeySet) Dev() bool { return s.body.Dev }

func (s KeySet) active() []Key {
	return slices.DeleteFunc(s.Keys(), func(k Key) bool { return k.State != Active })
}

// check checks the invariants of a KeySet. Parse, New and the transitions end with it.
func (s KeySet) check() error {
	if err := s.name.Check(); err != nil {
		return err
	}
	if s.body.Generation < 1 || s.body.Generation > MaxGeneration {
		return fmt.Errorf("its generation is %d; it counts from 1 to 2^53-1", s.body.Generation)
	}
	if err := s.checkBounds(len(s.issuers), len(s.keys), len(s.body.Gone)); err != nil {
		return err
	}
	for _, t := range s.times() {
		if t.Year() < 1 || t.Year() > 9999 {
			return errors.New("it records a time that RFC 3339 cannot write")
		}
	}
	return cmp.Or(s.checkIssuers(), s.checkKeys(), s.body.Policy.Check(s.body.Dev))
}

// checkIssuers compares routes and not the strings: development URLs may differ in their port only.
func (s KeySet) checkIssuers() error {
	if len(s.issuers) == 0 {
		return errors.New("it has no issuer URL")
	}
	for i, u := range s.issuers {
		if slices.ContainsFunc(s.issuers[:i], func(o IssuerURL) bool { return o.Route() == u.Route() }) {
			return fmt.Errorf("it has the issuer URL %s twice", u)
		}
	}
	return nil
}

func (s KeySet) checkKeys() error {
	gone, goneMaterial := map[KeyID]bool{}, map[Fingerprint]bool{}
	for _, g := range s.body.Gone {
		switch {
		case gone[g.ID] || (g.Why != Removed && g.Why != Revoked) || g.At.IsZero() || !g.ID.Valid():
			return fmt.Errorf("its gone line for %q is a second one or has no kid, at, or why (%s or %s)", printable(string(g.ID)), Removed, Revoked)
		case !g.Fingerprint.Valid():
			return fmt.Errorf("its gone line for %q has the fingerprint %q, which is not an unpadded base64url SHA-256", printable(string(g.ID)), printable(string(g.Fingerprint)))
		}
		gone[g.ID], goneMaterial[g.Fingerprint] = true, true
	}
	for i, k := range s.keys {
		switch {
		case k.Key() == nil || !k.ID().Valid():
			return fmt.Errorf("its key %d is empty or has a kid that is not 1 to %d printable ASCII characters", i+1, key.MaxKid)
		case i > 0 && s.keys[i-1].ID() == k.ID():
			return fmt.Errorf("two of its keys have the kid %q", k.ID())
		case gone[k.ID()] || goneMaterial[k.Fingerprint()]:
			g, _ := s.GoneLine(k.VerificationKey)
			return fmt.Errorf("key %s is published and gone (%s at %s) at once: %w", k.ID(), g.Why, stamp(g.At), ErrGoneReturned)
		}
		if err := k.CheckState(); err != nil {
			return fmt.Errorf("key %s: %w", k.ID(), err)
		}
	}
	return nil
}

// ErrGoneReturned reports that a key set is to get a key that is gone.
var ErrGoneReturned = errors.New("a key that is gone never comes back")

// latest returns the latest recorded time that gates depend on.
func (s KeySet) latest() time.Time {
	var t time.Time
	for _, at := range s.evidenceTimes() {
		t = later(t, *at)
	}
	return t
}

func (s *KeySet) evidenceTimes() []*time.Time {
	all := []*time.Time{&s.body.WithdrawnAt}
	for i := range s.keys {
		k := &s.keys[i]
		all = append(all, &k.PublishedAt, &k.ObservedAt, &k.PromotedAt, &k.RetiredAt)
	}
	for i := range s.body.Gone {
		all = append(all, &s.body.Gone[i].At)
	}
	return all
}

// times points to every time in s.
func (s *KeySet) times() []*time.Time {
	all := s.evidenceTimes()
	for i := range s.body.History {
		all = append(all, &s.body.History[i].At)
	}
	for i := range s.body.Policy.HeldUntil {
		all = append(all, &s.body.Policy.HeldUntil[i].Until)
	}
	for i := range s.body.Gone {
		g := &s.body.Gone[i]
		all = append(all, &g.PublishedAt, &g.PromotedAt, &g.RetiredAt)
	}
	return all
}
