// Package keystore holds key sets: the verification keys behind one or more issuer URLs, and the states those keys
// are in. It promises that a key set only ever changes by a transition whose gate was open, that it holds public
// keys only, and that a key set that was read is complete: only [Parse], [New] and the transitions make a [KeySet].
//
// A [Backend] stores documents: List, Get and Put of bytes. A [Store] on top of it reads and writes key sets. A server
// needs a [Reader] only.
//
// A new backend implements the three methods of [Backend] and, if its medium reports changes, [Watcher]. It maps names
// to places and back, takes a [Revision] from its medium, and writes on the condition that the revision is still the
// expected one. It knows nothing of keys: it neither parses nor encodes documents. Package storetest has the suite that
// proves it.
package keystore

import (
	"errors"
	"fmt"

	"github.com/keypost/keypost/internal/dnsname"
)

// Name names a key set within its store: a DNS label (RFC 1123), since it becomes a file name, an object name and a
// part of issuer URLs.
type Name string

// Check returns an error unless n is a DNS label of at most 63 characters.
func (n Name) Check() error {
	if !dnsname.IsLabel(string(n)) {
		return fmt.Errorf("%q is not a key set name: use lower-case letters, digits and hyphens, at most 63, with a letter or digit at both ends", string(n))
	}
	return nil
}

// Revision is an opaque token for one stored version of a key set. Two revisions of a name are equal only when the
// stored bytes are; nothing else may be concluded from it. The empty revision means "does not exist".
type Revision string

// Errors that every backend returns wrapped, so that callers can match them.
var (
	// ErrNotFound: no key set is stored under that name.
	ErrNotFound = errors.New("no such key set")
	// ErrConflict: the stored revision is not the expected one; nothing was written.
	ErrConflict = errors.New("the key set was changed by someone else")
	// ErrNotDurable: the write happened, but the store could not make sure that it survives a power cut.
	ErrNotDurable = errors.New("it is stored but may not survive a power cut; look at the disk")
	// ErrReadOnly: the store cannot be written from here (a mounted ConfigMap); nothing was written.
	ErrReadOnly = errors.New("the store is read-only")
)
