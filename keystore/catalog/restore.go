package catalog

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/keypost/keypost/keystore"
)

// NotOlderError reports that the stored version is not older than the one that would replace it. A broken one says its generation only:
// what it revokes cannot be read.
type NotOlderError struct {
	Stored, Good int64 // generations
	Broken       bool
}

func (e *NotOlderError) Error() string {
	if e.Broken {
		return fmt.Sprintf("the stored document is broken, and its generation %d is later than generation %d of the version to restore: "+
			"what it revokes or withdraws would be undone", e.Stored, e.Good)
	}
	return fmt.Sprintf("the store holds generation %d, which is not older than generation %d of the version to restore", e.Stored, e.Good)
}

// The errors of [Restore] about what is stored.
var (
	ErrStored    = errors.New("the store holds this version already")
	ErrWithdrawn = errors.New("the key set was withdrawn, and nothing of it is served any more")
)

// generationForm is what a broken document still says of its generation, in YAML or JSON.
var generationForm = regexp.MustCompile(`\bgeneration[\\"']*\s*:\s*([0-9]{1,18})\b`)

// Restore returns the last good version of a key set as the version that follows what is stored: doc, which may be older or
// broken, or nil where it is lost. Each line in gone stays that either has; those of a broken document cannot be read. The
// error is [ErrStored], [ErrWithdrawn], a [*NotOlderError] unless c.Force, or that of [keystore.KeySet.Accept].
func Restore(c keystore.Change, good keystore.KeySet, doc []byte) (keystore.KeySet, error) {
	stored, err := keystore.Parse(good.Name(), doc)
	generation := stored.Generation() // 0 of a broken one
	for _, m := range generationForm.FindAllSubmatch(doc, -1) {
		n, _ := strconv.ParseInt(string(m[1]), 10, 64) // the form bounds it
		generation = max(generation, n)
	}
	switch readable := err == nil; {
	case stored.Withdrawn(), good.Withdrawn():
		return good, ErrWithdrawn
	case readable && stored.Digest() == good.Digest():
		return good, ErrStored
	case readable && generation >= good.Generation() && !c.Force:
		return good, &NotOlderError{Stored: generation, Good: good.Generation()}
	case !readable && generation > good.Generation() && !c.Force:
		return good, &NotOlderError{Stored: generation, Good: good.Generation(), Broken: true}
	}
	c.Force = true // it may leave no key: what is gone stays gone
	next, err := good.Accept(c, generation, LostLines(good, stored.Gone()))
	if err != nil {
		return good, err
	}
	return next, nil
}
