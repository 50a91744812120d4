package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/keypost/keypost/keystore/history"
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

// Document is the document of a key set, byte for byte. [ParseDocument] makes it.
type Document struct {
	name       Name
	generation int64
	data       []byte
}

// ParseDocument is [Parse] for a document that [Store.Write] is to copy. The caller does not change data any more.
func ParseDocument(n Name, data []byte) (KeySet, Document, error) {
	s, err := Parse(n, data)
	if err != nil {
		return KeySet{}, Document{}, err
	}
	return s, Document{n, s.generation, data}, nil
}

// Replace writes s if the stored revision is still old (old == "" creates) and returns the new revision. It is durable
// when it returns nil. A stored version that s may not replace ([KeySet.MayReplace]) is a conflict. An error that wraps
// [ErrConflict] or [ErrReadOnly] means that nothing was written, one that wraps [ErrNotDurable] that it was. After any
// other error s may be stored or not; the message has what is known.
func (st *Store) Replace(ctx context.Context, old Revision, s KeySet) (Revision, error) {
	w, err := newWrite(s)
	switch {
	case err != nil:
		return "", err
	case ctx.Err() != nil:
		return "", ctx.Err()
	case old == "": // who may only create may not read
		return st.put(ctx, old, w)
	}
	was, rev, err := st.Load(ctx, s.name)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", fmt.Errorf("%w: it is gone", ErrConflict)
	case err != nil && !isBroken(err):
		return "", err
	case rev != old:
		return "", fmt.Errorf("%w: it has another revision", ErrConflict)
	} // a broken version has no generation to lose, and whoever repairs it has seen its revision
	return st.replaceLoaded(ctx, old, was, w)
}

// Write is Replace for a document as it is, byte for byte: a copy of a newer version's document keeps the members that
// this version does not know. The caller has loaded the version at revision old: its generation is was, 0 if it is broken
// or there is none.
func (st *Store) Write(ctx context.Context, doc Document, old Revision, was int64) (Revision, error) {
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case !mayReplace(doc.generation, was):
		return "", generationConflict(was, doc.generation)
	}
	return st.put(ctx, old, write{Document: doc})
}

// replaceLoaded is Replace for a caller that has just loaded the stored version: was, at revision old.
func (st *Store) replaceLoaded(ctx context.Context, old Revision, was KeySet, w write) (Revision, error) {
	if !mayReplace(w.generation, was.generation) {
		return "", generationConflict(was.generation, w.generation)
	}
	if w.event != nil && history.Contains(was.history, *w.event) { // the change adds no line
		w.event = nil
	}
	return st.put(ctx, old, w)
}

// write is a document to be stored. The stored versions that were made from it have the line of history that it adds.
type write struct {
	Document
	event *Event // that line; nil if it adds none
}

func newWrite(s KeySet) (write, error) {
	doc, err := Encode(s)
	w := write{Document: Document{s.name, s.generation, doc}}
	if n := len(s.history); n > 0 {
		w.event = &s.history[n-1]
	}
	return w, err
}

func generationConflict(stored, writing int64) error {
	return fmt.Errorf("%w: generation %d is stored, and %d was to be written", ErrConflict, stored, writing)
}

// put writes a document in place of old, whose generation was compared, and reads back when the answer leaves open what
// happened.
func (st *Store) put(ctx context.Context, old Revision, w write) (Revision, error) {
	rev, err := st.backend.Put(ctx, w.name, old, w.data)
	switch {
	case err == nil:
		return rev, nil
	case errors.Is(err, ErrReadOnly), errors.Is(err, ErrNotDurable):
		return "", err
	}
	return st.readBack(ctx, w, err)
}

// readBackTime bounds the look at a store that just failed, which goes on after the caller has given up.
const readBackTime = 10 * time.Second

// errUnknown is about a write that was stored or not; the stored version does not show it.
var errUnknown = errors.New("whether this write took effect is unknown; look at the key set and repeat the command if need be")

// readBack finds out whether a write is stored after Put returned the error failed. A conflict may be about our own write,
// sent twice on the way. Taking it for another writer's would apply a change twice.
func (st *Store) readBack(ctx context.Context, w write, failed error) (Revision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
	defer cancel()
	conflict, resent := errors.Is(failed, ErrConflict), errors.Is(failed, ErrResent)
	doc, rev, err := st.backend.Get(ctx, w.name)
	stored, broken := Parse(w.name, doc)
	readable := err == nil && broken == nil
	switch {
	case err == nil && w.isStored(stored, doc, conflict || resent):
		return rev, nil
	case err != nil && !errors.Is(err, ErrNotFound) && !isBroken(err):
		if conflict || resent { // which would promise that nothing was written
			return "", fmt.Errorf("whether the write took effect is unknown: %w", err)
		}
		return "", failed
	case readable && stored.generation <= w.generation:
		// Generations only grow: a version that had replaced ours would have a later one.
		if resent {
			return "", fmt.Errorf("%w: %w", ErrConflict, failed)
		}
		return "", failed
	case conflict && readable && w.event != nil && history.Contains(stored.history, *w.event):
		return "", fmt.Errorf("the stored version was made from it or from an equal one: %w", errUnknown)
	case conflict:
		return "", failed
	case resent, readable:
		return "", fmt.Errorf("it was written again or removed meanwhile: %w", errUnknown)
	}
	return "", failed
}

// isStored reports whether the stored version is w: the same bytes, or the same content in another notation. Labels and
// annotations count only where strict: others may add theirs (a webhook), but after a conflict another writer of the
// same content must not pass for us.
func (w write) isStored(b KeySet, doc []byte, strict bool) bool {
	if bytes.Equal(w.data, doc) {
		return true
	}
	a, err := Parse(w.name, w.data)
	switch {
	case err != nil || a.Digest() != b.Digest():
		return false
	case len(a.unknown)+len(b.unknown) > 0: // which the digest leaves out
		was, err := toJSON(w.data)
		now, errStored := toJSON(doc)
		return err == nil && errStored == nil && bytes.Equal(was, now)
	case strict:
		return maps.Equal(a.labels, b.labels) && maps.Equal(a.annotations, b.annotations)
	}
	return true
}
