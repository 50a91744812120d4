package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// Reader reads key sets, for publishers and mirrors.
//
// Both methods may be called concurrently. List is complete or an error: a missing name raises an alert, though it never
// counts as deleted. Load returns an error that wraps [ErrNotFound] for an absent name, one that wraps [*BrokenError]
// for a document that does not parse (with its revision, so that a caller can wait for another one), and any other
// error for trouble of the store. Key sets from a Reader are not trusted: publishers still check generation, gone keys
// and URLs.
type Reader interface {
	List(ctx context.Context) (map[Name]Revision, error)
	Load(ctx context.Context, n Name) (KeySet, Revision, error)
}

// Store reads and writes the key sets in a [Backend]. It parses what it loads. Every write of a key set ([Create],
// [Update], Replace, Write) goes through it: it checks name, size and generation before, and finds out afterwards what
// happened when the write failed. Whoever can write here can make relying parties trust their keys. It is safe for
// concurrent use, also by several processes.
type Store struct{ backend Backend }

var _ Reader = (*Store)(nil)

// NewStore returns the store on top of b.
func NewStore(b Backend) *Store { return &Store{b} }

// Backend returns the backend below the store.
func (st *Store) Backend() Backend { return st.backend }

// List returns every name with its revision.
func (st *Store) List(ctx context.Context) (map[Name]Revision, error) { return st.backend.List(ctx) }

// Load reads one key set.
func (st *Store) Load(ctx context.Context, n Name) (KeySet, Revision, error) {
	doc, rev, err := st.backend.Get(ctx, n)
	if err != nil {
		return KeySet{}, rev, err
	}
	s, err := Parse(n, doc)
	return s, rev, err
}

// Replace writes s if the stored revision is still old (old == "" creates) and returns the new revision. It is durable
// when it returns nil. A stored version that s may not replace ([KeySet.MayReplace]) is a conflict. An error that wraps
// [ErrConflict] or [ErrReadOnly] means that nothing was written, one that wraps [ErrNotDurable] that it was. After any
// other error s may be stored or not; the message says what is known.
func (st *Store) Replace(ctx context.Context, old Revision, s KeySet) (Revision, error) {
	doc, err := Encode(s)
	if err != nil {
		return "", err
	}
	return st.write(ctx, old, version{s, doc})
}

// Write is Replace for a document as it is, byte for byte: a copy of a newer version's document keeps the members that
// this version does not know. The document must be a key set named n.
func (st *Store) Write(ctx context.Context, n Name, old Revision, doc []byte) (Revision, error) {
	s, err := Parse(n, doc)
	if err != nil {
		return "", err
	}
	return st.write(ctx, old, version{s, doc})
}

// replaceLoaded is Replace for a caller that has just loaded the stored version: was, at revision old.
func (st *Store) replaceLoaded(ctx context.Context, old Revision, was, s KeySet) error {
	doc, err := Encode(s)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case !s.MayReplace(was):
		return generationConflict(was, s)
	}
	_, err = st.put(ctx, old, version{s, doc})
	return err
}

// version is a key set and its document.
type version struct {
	set KeySet
	doc []byte
}

func (st *Store) write(ctx context.Context, old Revision, v version) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if old != "" { // who may only create may not read
		if err := st.checkStored(ctx, old, v.set); err != nil {
			return "", err
		}
	}
	return st.put(ctx, old, v)
}

// checkStored compares the stored version with the expected one and with the one that is to replace it.
func (st *Store) checkStored(ctx context.Context, old Revision, s KeySet) error {
	stored, rev, err := st.Load(ctx, s.name)
	broken := isBroken(err)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("%w: it is gone", ErrConflict)
	case err != nil && !broken:
		return err
	case rev != old:
		return fmt.Errorf("%w: it has another revision", ErrConflict)
	case broken: // it has no generation to lose, and whoever repairs it has seen its revision
		return nil
	case !s.MayReplace(stored):
		return generationConflict(stored, s)
	}
	return nil
}

func generationConflict(stored, s KeySet) error {
	return fmt.Errorf("%w: generation %d is stored, and %d was to be written", ErrConflict, stored.generation, s.generation)
}

// put writes v in place of old, whose generation was compared, and reads back when the answer leaves open what happened.
func (st *Store) put(ctx context.Context, old Revision, v version) (Revision, error) {
	rev, err := st.backend.Put(ctx, v.set.name, old, v.doc)
	switch {
	case err == nil:
		return rev, nil
	case errors.Is(err, ErrReadOnly), errors.Is(err, ErrNotDurable):
		return "", err
	}
	return st.readBack(ctx, v, err)
}

// readBackTime bounds the look at a store that just failed, which goes on after the caller has given up.
const readBackTime = 10 * time.Second

// readBack finds out whether v is stored after Put returned the error failed. A conflict may be about our own write,
// sent twice on the way. Taking it for another writer's would apply a change twice.
func (st *Store) readBack(ctx context.Context, v version, failed error) (Revision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
	defer cancel()
	conflict, resent := errors.Is(failed, ErrConflict), errors.Is(failed, ErrResent)
	doc, rev, err := st.backend.Get(ctx, v.set.name)
	stored, broken := Parse(v.set.name, doc)
	switch {
	case err == nil && v.equals(version{stored, doc}, conflict || resent):
		return rev, nil
	case !conflict && !resent:
		return "", failed
	case err != nil && !errors.Is(err, ErrNotFound) && !isBroken(err):
		return "", fmt.Errorf("whether the write took effect is unknown: %w", err)
	case conflict:
		return "", failed
	case err == nil && broken == nil && stored.generation <= v.set.generation:
		// Generations only grow: a version that had replaced ours would have a later one.
		return "", fmt.Errorf("%w: %w", ErrConflict, failed)
	}
	return "", errors.New("it was written again or removed meanwhile, so whether this write took effect is unknown; " +
		"look at it and repeat the command if need be")
}

// equals reports whether the stored version is v: the same bytes, or the same content in another notation. Labels and
// annotations count only where strict: others may add theirs (a webhook), but after a conflict another writer of the
// same content must not pass for us.
func (v version) equals(stored version, strict bool) bool {
	switch a, b := v.set, stored.set; {
	case bytes.Equal(v.doc, stored.doc):
		return true
	case a.Digest() != b.Digest():
		return false
	case len(a.unknown)+len(b.unknown) > 0: // which the digest leaves out
		was, err := toJSON(v.doc)
		now, errStored := toJSON(stored.doc)
		return err == nil && errStored == nil && bytes.Equal(was, now)
	case strict:
		return maps.Equal(a.labels, b.labels) && maps.Equal(a.annotations, b.annotations)
	}
	return true
}
