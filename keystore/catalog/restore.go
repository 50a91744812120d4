package catalog

import (
	"errors"
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// NotOlderError reports that the stored version is not older than the one that would replace it.
type NotOlderError struct{ Stored, Good int64 } // generations

func (e *NotOlderError) Error() string {
	return fmt.Sprintf("the store holds generation %d, which is not older than generation %d of the version to restore", e.Stored, e.Good)
}

// The errors of [Restore] about what is stored.
var (
	ErrStored    = errors.New("the store holds this version already")
	ErrWithdrawn = errors.New("the key set was withdrawn, and nothing of it is served any more")
)

// Restore returns the last good version of a key set as the version that follows what is stored: doc, which may be older or
// broken, or nil where it is lost. Each line in gone stays that either has; those of a broken document cannot be read. The
// error is [ErrStored], [ErrWithdrawn], a [*NotOlderError] unless c.Force, or that of [keystore.KeySet.Accept].
func Restore(c keystore.Change, good keystore.KeySet, doc []byte) (keystore.KeySet, error) {
	stored, err := keystore.Parse(good.Name(), doc)
	switch readable := err == nil; {
	case stored.Withdrawn(), good.Withdrawn():
		return good, ErrWithdrawn
	case readable && stored.Digest() == good.Digest():
		return good, ErrStored
	case readable && stored.Generation() >= good.Generation() && !c.Force:
		return good, &NotOlderError{stored.Generation(), good.Generation()}
	}
	c.Force = true // it may leave no key: what is gone stays gone
	next, err := good.Accept(c, stored.Generation(), LostLines(good, stored.Gone()))
	if err != nil {
		return good, err
	}
	return next, nil
}
