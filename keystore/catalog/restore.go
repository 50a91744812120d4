package catalog

import (
	"errors"
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// NotOlderError reports that the stored version is not older than the one that would replace it, or that it is broken, so that
// nobody knows what it revokes.
type NotOlderError struct {
	Stored, Good int64 // generations; Stored is 0 if it is broken
}

func (e *NotOlderError) Error() string {
	if e.Stored == 0 {
		return "the stored document is broken, and it may revoke a key or withdraw the key set: nobody can tell, and the version to restore would undo that"
	}
	return fmt.Sprintf("the store holds generation %d, which is not older than generation %d of the version to restore", e.Stored, e.Good)
}

// The errors of [Restore] about what is stored.
var (
	ErrStored    = errors.New("the store holds this version already")
	ErrWithdrawn = errors.New("the key set was withdrawn, and nothing of it is served any more")
)

// Restore returns the last good version of a key set as the version that follows what is stored, as [keystore.Store.Load] returned
// it: an older version, one that is broken, or none. Each line in gone stays that either has; those of a broken document cannot be
// read. The error is [ErrStored], [ErrWithdrawn], a [*NotOlderError] unless c.Force, that of [keystore.KeySet.Accept], or that of
// the Load.
func Restore(c keystore.Change, good, stored keystore.KeySet, loaded error) (keystore.KeySet, error) {
	_, broken := errors.AsType[*keystore.BrokenError](loaded)
	lost := errors.Is(loaded, keystore.ErrNotFound)
	switch {
	case loaded != nil && !broken && !lost:
		return good, loaded
	case stored.Withdrawn(), good.Withdrawn():
		return good, ErrWithdrawn
	case loaded == nil && stored.Digest() == good.Digest():
		return good, ErrStored
	case !lost && (broken || stored.Generation() >= good.Generation()) && !c.Force:
		return good, &NotOlderError{stored.Generation(), good.Generation()}
	}
	c.Force = true // it may leave no key: what is gone stays gone
	next, err := good.Accept(c, stored.Generation(), keystore.Decided{Gone: LostLines(good, stored.Gone())})
	if err != nil {
		return good, err
	}
	return next, nil
}
