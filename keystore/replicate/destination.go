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

// destination is the state of the store to write to, with its last good versions: they are remembered although a document
// there was lost or damaged. One goroutine reads and transfers. The other methods are safe for concurrent use.
type destination struct {
	backend keystore.Backend
	repairs bool // broken documents may be replaced, since they are only copies
	dryRun  bool // nothing is written

	mu      sync.Mutex // guards the rest
	entries map[keystore.Name]entry
	good    lastgood.Index // the last good versions
}

// entry is the state of one document in the destination.
type entry struct {
	revision keystore.Revision   // the stored one; empty if there is none
	stored   *lastgood.Summary   // nil if there is no document, or a broken one
	broken   *lastgood.Rejection // why the stored document is not a key set
}

func newDestination(to keystore.Backend) *destination {
	return &destination{backend: to, entries: map[keystore.Name]entry{}}
}

// Good and Owner implement lastgood.State.
func (d *destination) Good(n keystore.Name) *lastgood.Summary {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Good(n)
}

func (d *destination) Owner(r keystore.Route) (keystore.Name, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.good.Owner(r)
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

// holds reports whether the version with that digest is both the stored and the last good one.
func (d *destination) holds(n keystore.Name, digest [sha256.Size]byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	stored, good := d.entries[n].stored, d.good.Good(n)
	return stored != nil && good != nil && stored.Digest() == digest && good.Digest() == digest
}

// read loads what has changed in the destination since the last call.
func (d *destination) read(ctx context.Context) error {
	listed, err := d.backend.List(ctx)
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
	all, err := loadAll(ctx, d.backend, changed, nil)
	if err != nil {
		return err
	}
	for _, n := range d.goodNames() {
		if _, ok := listed[n]; !ok {
			all = append(all, document{name: n})
		}
	}
	for _, doc := range all {
		if doc.rejected.Is(lastgood.ReasonUnreadable) {
			return fmt.Errorf("read key set %q: %w", doc.name, doc.err)
		}
		d.note(doc)
	}
	return nil
}

// note records one document of the destination. It becomes the last good version if it may follow that.
func (d *destination) note(doc document) {
	good := d.Good(doc.name)
	if doc.version != nil && doc.version.Follows(good) == nil {
		good = doc.version
	}
	d.put(doc.name, entry{doc.revision, doc.version, doc.rejected}, good)
}

func (d *destination) put(n keystore.Name, e entry, good *lastgood.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries[n] = e
	d.good.Put(n, good)
}

// candidate is a document of the source, and the result of copying it.
type candidate struct {
	*lastgood.Candidate
	document document
	was      int64 // generation of the last good version; 0 if there is none
	same     bool  // the same content is stored already
	err      error // of writing it
}

// candidates compares documents of the source with the last good versions.
func (d *destination) candidates(documents []document) []*candidate {
	all := make([]*candidate, len(documents))
	for i, doc := range documents {
		c := &candidate{document: doc, Candidate: &lastgood.Candidate{Name: doc.name, Version: doc.version, Rejected: doc.rejected}}
		if doc.version == nil && doc.rejected == nil {
			c.Rejected = lastgood.Reject(lastgood.ReasonMissing, "it has left the store since it was listed")
		}
		if good := d.Good(doc.name); good != nil {
			c.was = good.Generation()
		}
		all[i] = c
	}
	return all
}

// generation returns that of the version in the source; 0 if there is none.
func (c *candidate) generation() int64 {
	if c.Version == nil {
		return 0
	}
	return c.Version.Generation()
}

// transfer writes what j lets it write, tombstones first: an issuer URL may pass from a withdrawn key set to another, but
// not before the tombstone is written.
func (d *destination) transfer(ctx context.Context, all []*candidate, j lastgood.Judge) error {
	j.State = d
	for _, tombstones := range []bool{true, false} {
		var some []*candidate
		for _, c := range all {
			if tombstones == (c.Version != nil && c.Version.Withdrawn()) {
				some = append(some, c)
			}
		}
		if err := d.writeAll(ctx, d.decide(some, j)); err != nil {
			return err
		}
	}
	return nil
}

// decide sets the rejections and returns the candidates to write.
func (d *destination) decide(all []*candidate, j lastgood.Judge) (due []*candidate) {
	var batch []*lastgood.Candidate
	for _, c := range all {
		batch = append(batch, c.Candidate)
	}
	j.Decide(batch)
	for _, c := range all {
		e := d.entry(c.Name)
		switch {
		case c.Rejected != nil:
		case e.broken != nil && (!d.repairs || e.broken.Is(lastgood.ReasonNewerVersion)):
			c.Rejected = lastgood.Reject(e.broken.Reason, "what it would replace is not understood: %s", e.broken.Message)
		case e.stored != nil && e.stored.Digest() == c.Version.Digest():
			c.same = true // also where the bytes differ: see Copy
		default:
			due = append(due, c)
		}
	}
	return due
}

// writeAll writes documents byte for byte. In a dry run it only records what would be stored.
func (d *destination) writeAll(ctx context.Context, due []*candidate) error {
	st := keystore.NewStore(d.backend)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, c := range due {
		g.Go(func() error {
			rev := keystore.Revision("")
			if !d.dryRun {
				var err error
				is, was := d.entry(c.Name), int64(0)
				if is.stored != nil {
					was = is.stored.Generation()
				}
				if rev, err = st.Write(ctx, c.document.document, is.revision, was); err != nil {
					c.err = fmt.Errorf("write key set %q: %w", c.Name, err)
				}
			}
			if c.err == nil {
				d.put(c.Name, entry{revision: rev, stored: c.Version}, c.Version)
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}
