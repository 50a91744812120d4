// Package keystore holds key sets: the verification keys behind one or more issuer URLs, and the states those keys
// are in. It promises that a key set only ever changes by a transition whose gate was open, that what it holds is
// public, and that one that was read is whole: a [KeySet] is made by [Parse], by [New] and by the transitions, by
// nothing else.
//
// Where key sets are kept is a [Reader] (what a server needs) or a [Store] (what the command line needs). Backends
// prove themselves with package storetest.
package keystore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Name names a key set within its store: a DNS label (RFC 1123), since it becomes a file name, an object name and a
// part of issuer URLs.
type Name string

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Check tells whether n is a DNS label of at most 63 characters.
func (n Name) Check() error {
	if !nameForm.MatchString(string(n)) {
		return fmt.Errorf("%q is not a key set name: use lower-case letters, digits and hyphens, at most 63, with a letter or digit at both ends", string(n))
	}
	return nil
}

// Revision is an opaque token for one stored version of a key set. Two revisions of a name are equal only when the
// stored bytes are; nothing else may be read from it. The empty revision means "does not exist".
type Revision string

// Errors that every backend returns wrapped, so that callers can match them.
var (
	// ErrNotFound: no key set is stored under that name.
	ErrNotFound = errors.New("no such key set")
	// ErrConflict: the stored revision is not the expected one; nothing was written.
	ErrConflict = errors.New("the key set was changed by someone else")
	// ErrNotDurable: the write happened, but the store could not make sure that it survives a power cut.
	ErrNotDurable = errors.New("it is stored but may not survive a power cut; look at the disk")
	// ErrReadOnly: the store cannot be written from here (a mounted ConfigMap).
	ErrReadOnly = errors.New("the store is read-only")
)

// Reader gives key sets to whoever publishes or copies them.
//
// Both methods may be called concurrently. List is complete or an error: a backend that cannot be sure that it saw
// everything returns an error, because a caller reads a missing name as "missing", which raises an alert, though
// never as "deleted". Load returns an error that wraps [ErrNotFound] for an absent name, one that wraps
// [*BrokenError] for a document that does not parse, and any other error for trouble of the store. What a Reader
// returns is not trusted: publishers still check generation, gone keys and URLs.
type Reader interface {
	List(ctx context.Context) (map[Name]Revision, error)
	Load(ctx context.Context, n Name) (KeySet, Revision, error)
}

// Store is a Reader that can also be written. Whoever can write here can make relying parties trust their keys.
//
// Replace writes s under n if the stored revision is still old (old == "" creates) and returns the new revision; it
// is durable when it returns nil. An error that wraps [ErrConflict] or [ErrReadOnly] means that nothing was written,
// one that wraps [ErrNotDurable] that it was; after any other error the write may or may not have happened, and the
// caller reads back to learn which ([Update] does). It may be called concurrently from several processes; exactly one
// of several writers with the same old revision wins.
type Store interface {
	Reader
	Replace(ctx context.Context, n Name, old Revision, s KeySet) (Revision, error)
}

// Watcher is what a Reader may also be: Watch calls changed with the names that may have changed, or with none when
// it cannot tell which, until ctx is done or the watch is lost (an error). It may miss changes and report too many:
// a poll runs beside it. changed must return quickly and may be called concurrently.
type Watcher interface {
	Watch(ctx context.Context, changed func(...Name)) error
}

// Create stores a key set that does not exist yet.
func Create(ctx context.Context, st Store, s KeySet) error {
	_, err := st.Replace(ctx, s.Name(), "", s)
	if err == nil || didPersist(ctx, st, s, err) {
		return nil
	}
	return fmt.Errorf("create key set %q: %w", s.Name(), err)
}

// updateTries bounds how often Update starts again after a conflict: far more than honest writers ever collide, few
// enough that a store which always conflicts is reported.
const updateTries = 64

// Update reads a key set, applies change to it and stores the result with the next generation; after a conflict it
// starts again from what is stored then, so change may be called several times and must be pure. When a write fails
// in a way that leaves open whether it happened, Update reads back and reports success if it did.
func Update(ctx context.Context, st Store, n Name, change func(KeySet) (KeySet, error)) (KeySet, error) {
	for try := 1; ; try++ {
		s, err := updateOnce(ctx, st, n, change)
		if err == nil || !errors.Is(err, ErrConflict) || try == updateTries {
			return s, err
		}
		if ctx.Err() != nil {
			return KeySet{}, ctx.Err()
		}
	}
}

func updateOnce(ctx context.Context, st Store, n Name, change func(KeySet) (KeySet, error)) (KeySet, error) {
	was, rev, err := st.Load(ctx, n)
	if err != nil {
		return KeySet{}, fmt.Errorf("load key set %q: %w", n, err)
	}
	s, err := change(was)
	if err != nil {
		return KeySet{}, err
	}
	if s.Name() != n {
		return KeySet{}, fmt.Errorf("update key set %q: the change returned key set %q", n, s.Name())
	}
	switch {
	case s.next != 0:
		s.generation, s.next = s.next, 0
	case was.generation >= MaxFirstGeneration:
		return KeySet{}, fmt.Errorf("update key set %q: its generation %d is so high that keypostd takes no change of it; settle it first with keypost issuer accept %s --why REASON", n, was.generation, n)
	default:
		s.generation = was.generation + 1
	}
	if _, err := st.Replace(ctx, n, rev, s); err != nil && !didPersist(ctx, st, s, err) {
		return KeySet{}, fmt.Errorf("replace key set %q: %w", n, err)
	}
	return s, nil
}

// readBack bounds the look at a store that just failed, which goes on after the caller has given up.
const readBack = 10 * time.Second

// didPersist answers the one question that a failed write leaves open: is what is stored now what we wrote?
func didPersist(ctx context.Context, st Reader, s KeySet, err error) bool {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrReadOnly) || errors.Is(err, ErrNotDurable) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBack)
	defer cancel()
	stored, _, err := st.Load(ctx, s.Name())
	return err == nil && stored.generation == s.generation && stored.Digest() == s.Digest()
}
