package replicate

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// destination is the state of the store to write to, with its last good versions: they are remembered although a document
// there was lost or damaged. It is for one goroutine.
type destination struct {
	lastgood.Index // the last good versions
	backend        keystore.Backend
	repairs        bool // broken documents may be replaced, since they are only copies
	dryRun         bool // nothing is written
	copies         map[keystore.Name]stored
}

// stored is the state of one document in the destination.
type stored struct {
	revision keystore.Revision   // empty if there is none
	version  *lastgood.Summary   // nil if there is no document, or a broken one
	broken   *lastgood.Rejection // why it is not a key set
}

// holds reports whether the version with that digest is both the stored and the last good one.
func (d *destination) holds(n keystore.Name, digest keystore.Digest) bool {
	is, good := d.copies[n].version, d.Good(n)
	return is != nil && good != nil && is.Digest() == digest && good.Digest() == digest
}

// read loads what has changed in the destination since the last call.
func (d *destination) read(ctx context.Context) error {
	listed, err := d.backend.List(ctx)
	if err != nil {
		return err
	}
	var changed []keystore.Name
	for n, rev := range listed {
		if d.copies[n].revision != rev {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed) // where two have one URL the first of them owns it, and not one by chance
	documents, err := loadAll(ctx, d.backend, changed, nil)
	if err != nil {
		return err
	}
	for _, n := range d.Names() {
		if _, ok := listed[n]; !ok {
			documents = append(documents, &document{Candidate: lastgood.Candidate{Name: n}})
		}
	}
	for _, doc := range documents {
		if doc.Rejected.Is(lastgood.ReasonUnreadable) {
			return fmt.Errorf("read key set %q: %w", doc.Name, doc.err)
		}
		d.copies[doc.Name] = stored{doc.revision, doc.Version, doc.Rejected}
		if doc.Version != nil && doc.Version.Follows(d.Good(doc.Name)) == nil {
			d.Put(doc.Name, doc.Version)
		}
	}
	return nil
}

// transfer writes of the documents what j lets it write, tombstones first: an issuer URL may pass from a withdrawn key set to
// another, but not before the tombstone is written.
func (d *destination) transfer(ctx context.Context, documents []*document, j lastgood.Judge) error {
	j.State = d
	var tombstones, others []*document
	for _, doc := range documents {
		if doc.Version == nil && doc.Rejected == nil {
			doc.Rejected = lastgood.Reject(lastgood.ReasonMissing, "it has left the store since it was listed")
		}
		if good := d.Good(doc.Name); good != nil {
			doc.was = good.Generation()
		}
		if doc.Version != nil && doc.Version.Withdrawn() {
			tombstones = append(tombstones, doc)
		} else {
			others = append(others, doc)
		}
	}
	if err := d.write(ctx, d.decide(tombstones, j)); err != nil {
		return err
	}
	return d.write(ctx, d.decide(others, j))
}

// decide sets the rejections and returns the documents to write.
func (d *destination) decide(documents []*document, j lastgood.Judge) (due []*document) {
	var batch []*lastgood.Candidate
	for _, doc := range documents {
		batch = append(batch, &doc.Candidate)
	}
	j.Decide(batch)
	for _, doc := range documents {
		is := d.copies[doc.Name]
		switch {
		case doc.Rejected != nil:
		case is.broken != nil && (!d.repairs || is.broken.Is(lastgood.ReasonNewerVersion)):
			doc.Rejected = lastgood.Reject(is.broken.Reason, "what it would replace is not understood: %s", is.broken.Message)
		case is.version != nil && is.version.Digest() == doc.Version.Digest():
			doc.same = true // also where the bytes differ: see Copy
		default:
			due = append(due, doc)
		}
	}
	return due
}

// write writes documents byte for byte. In a dry run it only records what would be stored.
func (d *destination) write(ctx context.Context, due []*document) error {
	st := keystore.NewStore(d.backend)
	written := make([]keystore.Revision, len(due))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, doc := range due {
		old := d.copies[doc.Name].revision
		g.Go(func() error {
			if !d.dryRun {
				written[i], doc.err = st.Write(ctx, old, doc.text)
			}
			return ctx.Err()
		})
	}
	stopped := g.Wait()
	for i, doc := range due {
		if doc.err != nil {
			doc.err = fmt.Errorf("write key set %q: %w", doc.Name, doc.err)
			continue
		}
		d.copies[doc.Name] = stored{revision: written[i], version: doc.Version}
		d.Put(doc.Name, doc.Version)
	}
	return stopped
}
