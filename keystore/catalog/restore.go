package catalog

import (
	"errors"
	"fmt"
	"regexp"

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

// What a broken document still shows, in YAML or JSON. Only lines in gone have a fingerprint.
var (
	goneForm      = regexp.MustCompile(`\bfingerprint[\\"']*\s*:\s*[\\"']*([A-Za-z0-9_-]{43})\b`)
	withdrawnForm = regexp.MustCompile(`\bwithdrawnAt[\\"']*\s*:\s*[\\"']*[0-9]`)
)

// Restore returns the last good version of a key set as the version that follows what is stored: doc, which may be older or
// broken, or nil where it is lost. Each line in gone stays that either has. Of a broken document that is the key of each
// fingerprint; its key ID is lost, and its key counts as revoked. The error is [ErrStored], [ErrWithdrawn], a [*NotOlderError]
// unless c.Force, or that of [keystore.KeySet.Accept].
func Restore(c keystore.Change, good keystore.KeySet, doc []byte) (keystore.KeySet, error) {
	stored, err := keystore.Parse(good.Name(), doc)
	gone, generation := stored.Gone(), stored.Generation()
	switch parsed := err == nil; {
	case !parsed && withdrawnForm.Match(doc), stored.Withdrawn(), good.Withdrawn():
		return good, ErrWithdrawn
	case parsed && stored.Digest() == good.Digest():
		return good, ErrStored
	case parsed && generation >= good.Generation() && !c.Force:
		return good, &NotOlderError{generation, good.Generation()}
	case !parsed:
		generation = 0
		for _, m := range goneForm.FindAllSubmatch(doc, -1) {
			f := keystore.Fingerprint(m[1])
			gone = append(gone, keystore.Gone{ID: keystore.KeyID(f), Fingerprint: f, Why: keystore.Revoked})
		}
	}
	c.Force = true // it may leave no key: what is gone stays gone
	next, err := good.Accept(c, generation, LostLines(good, gone))
	if err != nil {
		return good, err
	}
	return next.Settled(), nil
}
