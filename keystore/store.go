package keystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
// [Update], Replace, Write) goes through it: after a write that failed it reads back what is stored. Everyone who can write
// here can make relying parties trust their keys. It is safe for concurrent use, also by several processes.
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
	name Name
	data []byte
}

// ParseDocument is [Parse] for a document that [Store.Write] is to copy. The caller does not change data any more.
func ParseDocument(n Name, data []byte) (KeySet, Document, error) {
	s, err := Parse(n, data)
	if err != nil {
		return KeySet{}, Document{}, err
	}
	return s, Document{n, data}, nil
}

// Replace writes s if the stored revision is still old (old == "" creates) and returns the new revision. It is durable
// when it returns nil. An error that wraps [ErrConflict] or [ErrReadOnly] means that nothing was written, one that wraps
// [ErrNotDurable] that it was. After any other error s may be stored or not; the message has what is known.
func (st *Store) Replace(ctx context.Context, old Revision, s KeySet) (Revision, error) {
	data, err := Encode(s)
	if err != nil {
		return "", err
	}
	return st.Write(ctx, old, Document{s.name, data})
}

// Write is Replace for a document as it is, byte for byte: a copy of a newer version's document keeps the members that
// this version does not know. It reads back where an error leaves open what happened.
func (st *Store) Write(ctx context.Context, old Revision, doc Document) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	rev, err := st.backend.Put(ctx, doc.name, old, doc.data)
	if err == nil || errors.Is(err, ErrNotDurable) {
		return rev, err
	}
	return st.readBack(ctx, doc, err)
}

// readBackTime bounds the look at a store that just failed, which goes on after the caller has given up.
const readBackTime = 10 * time.Second

// readBack finds out whether a document is stored after Put returned the error failed. A conflict may be with our own
// write, sent twice on the way: a change would be made twice if that passed for another writer's. So may a refusal.
func (st *Store) readBack(ctx context.Context, doc Document, failed error) (Revision, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
	defer cancel()
	data, rev, err := st.backend.Get(ctx, doc.name)
	switch {
	case err == nil && doc.isStored(data):
		return rev, nil
	case errors.Is(failed, ErrReadOnly):
		return "", failed
	case errors.Is(failed, ErrConflict) && err != nil && !errors.Is(err, ErrNotFound) && !isBroken(err):
		return "", fmt.Errorf("whether the write took effect is unknown: %w", err) // a conflict promises that it did not
	case errors.Is(failed, ErrConflict):
		return "", failed
	}
	ours, _ := Parse(doc.name, doc.data)
	if stored, broken := Parse(doc.name, data); err == nil && broken == nil && stored.body.Generation > ours.body.Generation {
		return "", fmt.Errorf("whether this write took effect is unknown: %w; another one followed, so look at the key set and repeat the command if need be", failed)
	}
	return "", failed
}

// isStored reports whether data is the document, byte for byte or in another notation, such as that of an API server. A
// document has who changed the key set last and when, so that the same content of another writer is another document.
func (d Document) isStored(data []byte) bool {
	if bytes.Equal(d.data, data) {
		return true
	}
	ours, err := Parse(d.name, d.data)
	stored, errStored := Parse(d.name, data)
	return err == nil && errStored == nil && len(ours.unknown)+len(stored.unknown) == 0 && ours.Digest() == stored.Digest()
}
