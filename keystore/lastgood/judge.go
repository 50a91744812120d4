package lastgood

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// State gives a [Judge] the last good versions. Its methods must not take longer the more key sets there are: a change of
// one among ten thousand must not look at all of them. A Judge calls it from one goroutine.
type State interface {
	// Good returns the last good version of a key set, nil when there is none.
	Good(n keystore.Name) *Summary
	// Owner returns the key set whose last good version is live and has an issuer URL at r.
	Owner(r keystore.Route) (n keystore.Name, owned bool)
}

// Judge decides which versions replace the last good ones. It does no I/O. A caller that refuses versions for reasons of
// its own does so before.
//
// Beside [Summary.Follows] it has one rule: an issuer URL has one owner. Two URLs with the same [keystore.Route] count as one.
//
// A URL belongs to the key set whose last good version has it, whatever becomes of that key set's
// document, until its tombstone. Of several newcomers none gets it: choosing one by chance would let a second writer
// take an issuer over at the next restart. For the same reason no newcomer gets a URL that a rejected document of another
// newcomer has, or may have: one that waits for a URL itself, is broken and has it, or cannot be read. A document that
// cannot be read may have every URL that is permitted to its key set.
//
// Without Permitted that is every URL. There, such a document counts only while the store does not return it, and until
// [StartPatience]: else anyone who may write one could keep a new copy empty.
//
// A tombstone ends its own key set and says nothing of others: from an empty state nobody can tell whether its key set ever
// had the URLs and the keys that it lists.
type Judge struct {
	State State

	// Permitted reports whether a key set may have an issuer URL at r; nil means that every one may.
	Permitted func(n keystore.Name, r keystore.Route) bool
	// Rejected yields the key sets in the store whose documents were rejected when they were judged last, with the reasons;
	// nil for none. Candidates do not count. It is called at most once, and only if there is a newcomer.
	Rejected iter.Seq2[keystore.Name, *Rejection]
	// Waited is the time since the store was listed completely for the first time. It counts only without Permitted.
	Waited time.Duration
}

// Candidate is a version of a key set that may become its last good one.
type Candidate struct {
	Name     keystore.Name
	Version  *Summary   // nil when there is none to judge
	Rejected *Rejection // nil when the version may become the last good one
}

// Decide sets the Rejected of candidates that are judged together. It leaves one that is rejected already as it is. The
// tombstones among the others count as last good versions at once: a caller for which writing one may
// fail decides about tombstones in a separate batch.
func (j Judge) Decide(batch []*Candidate) {
	t := trial{Judge: j, batch: batch, wanted: map[keystore.Route][]keystore.Name{}, ended: map[keystore.Name]bool{}}
	var open []*Candidate
	for _, c := range batch {
		if c.Rejected != nil {
			t.refused = append(t.refused, *c)
		}
		if c.Version == nil || c.Rejected != nil {
			continue
		}
		if c.Rejected = c.Version.Follows(j.State.Good(c.Name)); c.Rejected == nil {
			t.enter(c)
			open = append(open, c)
		}
	}
	for _, c := range open {
		c.Rejected = t.judge(c)
	}
}

// trial is a batch whose versions are judged against each other.
type trial struct {
	Judge
	batch   []*Candidate
	refused []Candidate                        // those of the batch that were rejected before
	rivals  *rivals                            // made when a newcomer is judged
	wanted  map[keystore.Route][]keystore.Name // by live versions
	ended   map[keystore.Name]bool             // by tombstones
}

func (t *trial) enter(c *Candidate) {
	t.ended[c.Name] = c.Version.Withdrawn()
	for _, u := range c.Version.served() {
		t.wanted[u.Route()] = append(t.wanted[u.Route()], c.Name)
	}
}

// judge judges a version that follows the last good one.
func (t *trial) judge(c *Candidate) *Rejection {
	for _, u := range c.Version.served() {
		if r := t.conflict(c, u); r != nil {
			return r
		}
	}
	return nil
}

// conflict refuses a version with a URL that is another key set's, or may be.
func (t *trial) conflict(c *Candidate, issuer keystore.IssuerURL) *Rejection {
	at := issuer.Route()
	owner, owned := t.State.Owner(at)
	if owned && owner == c.Name {
		return nil
	}
	if owned && !t.ended[owner] {
		return c.inConflict("its issuer URL %s belongs to key set %q", issuer, owner)
	}
	others := slices.DeleteFunc(slices.Clone(t.wanted[at]), func(n keystore.Name) bool { return n == c.Name })
	if len(others) > 0 {
		return c.inConflict("its issuer URL %s is also that of key set %q", issuer, slices.Min(others))
	}
	if t.rivals == nil {
		t.rivals = t.findRivals()
	}
	if names := t.rivals.at[at]; len(names) > 0 {
		return c.inConflict("its issuer URL %s is also in the rejected document of key set %q", issuer, names[0])
	}
	for _, n := range t.rivals.unknown {
		if t.permitted(n, at) {
			r := c.inConflict("its issuer URL %s may also be in the document of key set %q, which cannot be read", issuer, n)
			r.Final = false
			return r
		}
	}
	return nil
}

// inConflict returns the Rejection of a version that may have its issuer URLs later.
func (c *Candidate) inConflict(format string, args ...any) *Rejection {
	r := Reject(ReasonURLConflict, format, args...)
	r.URLs = c.Version.issuers
	return r
}

func (t *trial) permitted(n keystore.Name, r keystore.Route) bool {
	return t.Permitted == nil || t.Permitted(n, r)
}

// rivals are the key sets whose rejected documents have issuer URLs, or may have them: none that is still to be judged.
type rivals struct {
	at      map[keystore.Route][]keystore.Name // sorted, as unknown is
	unknown []keystore.Name                    // it is not known which
}

func (t *trial) findRivals() *rivals {
	all := map[keystore.Name]*Rejection{}
	if t.Rejected != nil {
		maps.Insert(all, t.Rejected)
	}
	for _, c := range t.batch {
		delete(all, c.Name)
	}
	for _, c := range t.refused {
		all[c.Name] = c.Rejected
	}
	found := &rivals{at: map[keystore.Route][]keystore.Name{}}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		r := all[n]
		switch {
		case !r.Is(ReasonURLConflict) && t.State.Good(n) != nil: // what it has is known, and it is not a newcomer
		case len(r.URLs) > 0:
			for _, u := range r.URLs {
				if at := u.Route(); t.permitted(n, at) {
					found.at[at] = append(found.at[at], n)
				}
			}
		case r.Is(ReasonUnreadable) && (t.Permitted != nil || r.Waits() && t.Waited < StartPatience):
			found.unknown = append(found.unknown, n)
		}
	}
	return found
}
