package replicate

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// destination is what is known of the store that is written to, and the last good versions: a document that was lost or
// damaged there is no reason to forget its content. One goroutine reads and transfers; the other methods are safe for
// concurrent use.
type destination struct {
	repairs bool // a broken document there may be replaced, since it is only a copy

	mu      sync.Mutex // guards the rest
	entries map[keystore.Name]entry
	good    lastgood.Index // the last good versions
}

// entry is what is known of one document in the destination.
type entry struct {
	revision keystore.Revision   // that a write has to name; empty when there is none
	stored   *lastgood.Summary   // nil when there is none, or a broken one
	broken   *lastgood.Rejection // why the stored document is no key set
}

func newDestination() *destination { return &destination{entries: map[keystore.Name]entry{}} }

// Good, Owner and Had implement lastgood.State.
func (d *destination) Good(n keystore.Name) *lastgood.Summary {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Good(n)
}

func (d *destination) Owner(r lastgood.Route) (keystore.Name, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Owner(r)
}

func (d *destination) Had(r lastgood.Route) []keystore.Name {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.good.Had(r))
}

func (d *destination) entry(n keystore.Name) entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[n]
}

// goodNames returns the key sets with a last good version, sorted.
func (d *destination) goodNames() []keystore.Name {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Names()
}

func (d *destination) goodLen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Len()
}

// holds reports whether the version with that digest is stored and is the last good one.
func (d *destination) holds(n keystore.Name, digest [sha256.Size]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	stored, good := d.entries[n].stored, d.good.Good(n)
	return stored != nil && good != nil && stored.Digest() == digest && good.Digest() == digest
}

// read takes in what has changed in the store since the last time.
func (d *destination) read(ctx context.Context, st keystore.Reader) error {
	listed, err := st.List(ctx)
	if err != nil {
		return err
	}
	var changed []keystore.Name
	for n, rev := range listed {
		if d.entry(n).revision != rev {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	all, err := loadAll(ctx, st, changed)
	if err != nil {
		return err
	}
	for _, n := range d.goodNames() {
		if _, ok := listed[n]; !ok {
			all = append(all, document{name: n, err: keystore.ErrNotFound})
		}
	}
	for _, doc := range all {
		if err := d.note(doc); err != nil {
			return err
		}
	}
	return nil
}

// note takes in one document of the store. One that does not follow the last good version is stored and not good.
func (d *destination) note(doc document) error {
	e := entry{revision: doc.revision, broken: lastgood.RejectError(doc.err)}
	if e.broken.Is(lastgood.ReasonUnreadable) {
		return fmt.Errorf("read key set %q: %w", doc.name, doc.err)
	}
	good := d.Good(doc.name)
	if doc.err == nil {
		s := lastgood.SummaryOf(doc.set)
		e.stored = &s
		if s.Follows(good) == nil {
			good = &s
		}
	}
	d.put(doc.name, e, good)
	return nil
}

func (d *destination) put(n keystore.Name, e entry, good *lastgood.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[n] = e
	d.good.Put(n, good)
}

// candidate is a key set that is to be written, and what became of it.
type candidate struct {
	*lastgood.Candidate
	document
	was      int64 // generation of the last good version; 0 when there is none
	same     bool  // it is stored already
	writeErr error // of writing it
}

// candidate compares a document of the source with the last good version.
func (d *destination) candidate(doc document) *candidate {
	good := d.Good(doc.name)
	c := &candidate{document: doc, Candidate: &lastgood.Candidate{Name: doc.name, Rejected: lastgood.RejectError(doc.err)}}
	switch {
	case doc.err == nil:
		s := lastgood.SummaryOf(doc.set)
		c.Candidate = lastgood.NewCandidate(doc.name, &s, good)
	case c.Rejected == nil: // it has left the source since it was listed
		c.Rejected = lastgood.RejectMissing()
	}
	if good != nil {
		c.was = good.Generation()
	}
	return c
}

// generation returns that of the version in the source; 0 when there is none.
func (c *candidate) generation() int64 {
	if c.Version == nil {
		return 0
	}
	return c.Version.Generation()
}

// transfer writes what may be written, tombstones first: an issuer URL may pass from a withdrawn key set to another, but
// not before the tombstone is written.
func (d *destination) transfer(ctx context.Context, st *keystore.Store, all []*candidate) error {
	for _, tombstones := range []bool{true, false} {
		var some []*candidate
		for _, c := range all {
			if c.Version != nil && c.Version.Withdrawn() == tombstones {
				some = append(some, c)
			}
		}
		if err := d.writeAll(ctx, st, d.decide(some)); err != nil {
			return err
		}
	}
	return nil
}

// decide fills in the rejections and returns what is to be written.
func (d *destination) decide(all []*candidate) (due []*candidate) {
	var batch []*lastgood.Candidate
	for _, c := range all {
		batch = append(batch, c.Candidate)
	}
	lastgood.Judge{State: d}.Decide(batch)
	for _, c := range all {
		e := d.entry(c.name)
		switch {
		case c.Rejected != nil:
		case e.broken != nil && (!d.repairs || e.broken.Is(lastgood.ReasonNewerVersion)):
			c.Rejected = lastgood.Reject(e.broken.Reason, "what it would replace is not understood: %s", e.broken.Message)
		case e.stored != nil && e.stored.Digest() == c.Version.Digest():
			c.same = true
		default:
			due = append(due, c)
		}
	}
	return due
}

// writeAll writes into st, or if that is nil only notes what would be stored.
func (d *destination) writeAll(ctx context.Context, st *keystore.Store, due []*candidate) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, c := range due {
		g.Go(func() error {
			rev := keystore.Revision("")
			if st != nil {
				rev, c.writeErr = d.write(ctx, st, c)
			}
			if c.writeErr == nil {
				d.put(c.name, entry{revision: rev, stored: c.Version}, c.Version)
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

func (d *destination) write(ctx context.Context, st *keystore.Store, c *candidate) (keystore.Revision, error) {
	rev, err := st.Replace(ctx, d.entry(c.name).revision, c.set)
	if err != nil {
		return "", fmt.Errorf("write key set %q: %w", c.name, err)
	}
	return rev, nil
}
