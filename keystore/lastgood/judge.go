package lastgood

import (
	"slices"

	"github.com/keypost/keypost/keystore"
)

// State gives a [Judge] the last good versions. Its methods must not take longer the more key sets there are: a change of
// one among ten thousand must not look at all of them. A Judge calls it from one goroutine.
type State interface {
	// Good returns the last good version of a key set, nil when there is none.
	Good(n keystore.Name) *Summary
	// Owner returns the key set whose last good version is live and has an issuer URL at r.
	Owner(r Route) (n keystore.Name, owned bool)
	// Had returns the key sets whose last good version may be a tombstone with an issuer URL at r. It may return others:
	// the Judge looks at their last good versions.
	Had(r Route) []keystore.Name
}

// Judge decides which versions replace the last good ones. It does no I/O. A caller that refuses versions for reasons of
// its own does so before.
//
// Beside [Summary.Follows] it has two rules, which are about issuer URLs. Two URLs with the same [Route] count as one.
//
// A URL has one owner. It belongs to the key set whose last good version has it, whatever becomes of that key set's
// document, until its tombstone. Of several newcomers none gets it: choosing one by chance would let a second writer
// take an issuer over at the next restart.
//
// Relying parties see one issuer for a URL, whichever key set serves it. So a key that left with a withdrawn key set does
// not return with another key set for the same URL.
type Judge struct {
	State State

	// Permitted reports whether a key set may have an issuer URL at r; nil means that every one may. The tombstone of one
	// that may not bars no key: else whoever may write one key set could bar the keys of others.
	Permitted func(n keystore.Name, r Route) bool
	// Rival returns a key set other than n whose version is not known and that may therefore claim r too. A caller sets it
	// if it keeps track of the documents that it could not read; nil means that there are none.
	Rival func(n keystore.Name, r Route) (rival keystore.Name, found bool)
}

// Candidate is a version of a key set that may become its last good one.
type Candidate struct {
	Name     keystore.Name
	Version  *Summary   // nil when there is none to judge
	Rejected *Rejection // nil when the version may become the last good one

	was     *Summary   // what follows is about
	follows *Rejection // of Version after was
}

// NewCandidate returns a candidate and compares its version ([Summary.Follows]) with was, the last good version now. It
// may be called concurrently before [Judge.Decide], which compares again only if the last good version has changed.
func NewCandidate(n keystore.Name, version, was *Summary) *Candidate {
	return &Candidate{Name: n, Version: version, was: was, follows: version.Follows(was)}
}

// Decide sets the Rejected of candidates that are judged together. A candidate that is rejected already, or has no version,
// claims nothing. The tombstones among the others count as last good versions at once: a caller for which writing one may
// fail decides about tombstones in a separate batch.
func (j Judge) Decide(batch []*Candidate) {
	t := trial{j, map[Route][]keystore.Name{}, map[keystore.Name]*Summary{}, map[Route][]keystore.Name{}}
	var open []*Candidate
	for _, c := range batch {
		if c.Version == nil || c.Rejected != nil {
			continue
		}
		if c.Rejected = c.judge(j.State.Good(c.Name)); c.Rejected == nil {
			t.enter(c)
			open = append(open, c)
		}
	}
	for _, c := range open {
		c.Rejected = t.judge(c)
	}
}

func (c *Candidate) judge(good *Summary) *Rejection {
	if good != c.was {
		return c.Version.Follows(good)
	}
	return c.follows
}

// trial is a batch whose versions are judged against each other.
type trial struct {
	Judge
	claims     map[Route][]keystore.Name // by live versions, also of those that bring a key back
	tombstones map[keystore.Name]*Summary
	ended      map[Route][]keystore.Name // by tombstones
}

func (t *trial) enter(c *Candidate) {
	claims := t.claims
	if c.Version.Withdrawn() {
		t.tombstones[c.Name] = c.Version
		claims = t.ended
	}
	for r := range c.Version.Routes() {
		claims[r] = append(claims[r], c.Name)
	}
}

// judge judges a version that follows the last good one.
func (t *trial) judge(c *Candidate) *Rejection {
	if c.Version.Withdrawn() {
		return nil
	}
	for u := range c.Version.Issuers() {
		if r := t.returns(c, u); r != nil {
			return r
		}
	}
	for u := range c.Version.Issuers() {
		if r := t.conflict(c, u); r != nil {
			return r
		}
	}
	return nil
}

// returns refuses a version with a key that left a URL with another key set. (What left with a tombstone of its own,
// Follows has refused.)
func (t *trial) returns(c *Candidate, issuer string) *Rejection {
	at := RouteOf(issuer)
	for _, names := range [][]keystore.Name{t.State.Had(at), t.ended[at]} {
		for _, n := range names {
			tombstone := t.tombstones[n]
			if tombstone == nil {
				tombstone = t.State.Good(n)
			}
			if tombstone == nil || !tombstone.Withdrawn() || !tombstone.has(at) || t.Permitted != nil && !t.Permitted(n, at) {
				continue
			}
			if id, returns := c.Version.returning(t.State.Good(c.Name), tombstone); returns {
				return Reject(ReasonGoneReturned, "key %s left the issuer URL %s for good with the withdrawn key set %q", id, issuer, n)
			}
		}
	}
	return nil
}

// conflict refuses a version with a URL that is another key set's, or may be.
func (t *trial) conflict(c *Candidate, issuer string) *Rejection {
	at := RouteOf(issuer)
	owner, owned := t.State.Owner(at)
	if owned && owner == c.Name {
		return nil
	}
	if owned && t.tombstones[owner] == nil {
		return Reject(ReasonURLConflict, "its issuer URL %s belongs to key set %q", issuer, owner)
	}
	others := slices.DeleteFunc(slices.Clone(t.claims[at]), func(n keystore.Name) bool { return n == c.Name })
	if len(others) > 0 {
		return Reject(ReasonURLConflict, "its issuer URL %s is also that of key set %q", issuer, slices.Min(others))
	}
	if t.Rival == nil {
		return nil
	}
	if rival, found := t.Rival(c.Name, at); found {
		return Reject(ReasonURLConflict, "its issuer URL %s may also be that of key set %q, whose version in the store is not known", issuer, rival)
	}
	return nil
}
