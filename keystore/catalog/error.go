package catalog

import (
	"errors"
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// Kind sorts the errors of this package, for who says what to do about one.
type Kind int

// The kinds of errors.
const (
	BadName       Kind = iota + 1 // an argument is not a name of a key set: Names[0]
	NoKeySet                      // no key set has the issuer URL
	MayBeOne                      // as NoKeySet, but documents could not be read
	Ambiguous                     // several key sets have the issuer URL: Names
	NoKey                         // no key of Names[0] has the key ID or begins with it
	KeyGone                       // the key has left Names[0]
	BadPrefix                     // what was typed is too short, or begins several key IDs
	Taken                         // the key set Names[0], in use, has the name or an issuer URL of a new one
	Tombstone                     // the name of a new key set belongs to a withdrawn one that cannot be reopened for it
	Reuse                         // an issuer URL belonged to a key set that was withdrawn
	Unread                        // the document of Names[0] cannot be read, and has or may have the issuer URL
	Revoked                       // a key was revoked in the key set Names[0], so that it may be in wrong hands
	Collision                     // the key set Names[0] was stored, and at the same time another with the same issuer URL
	Contradiction                 // a verdict keeps a key and lets it be gone
	Barred                        // a verdict keeps a key that never returns
)

// Error is what keeps an argument from being understood, or a key set from being added.
type Error struct {
	Kind    Kind
	Names   []keystore.Name // the key sets that it is about
	Message string
	Err     error // may be nil
}

func (e *Error) Error() string { return e.Message }
func (e *Error) Unwrap() error { return e.Err }

func errorf(k Kind, n keystore.Name, format string, args ...any) *Error {
	return &Error{Kind: k, Names: []keystore.Name{n}, Message: fmt.Sprintf(format, args...)}
}

// KindOf returns the kind of an error, 0 if it is none of this package.
func KindOf(err error) Kind {
	if e, is := errors.AsType[*Error](err); is {
		return e.Kind
	}
	return 0
}
