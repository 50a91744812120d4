package keystore

import (
	"errors"
	"fmt"
)

// Reason sorts broken documents for metrics.
type Reason string

// Why a document is broken.
const (
	ReasonBroken       Reason = "broken"        // does not parse, or breaks an invariant
	ReasonNewerVersion Reason = "newer_version" // another major version
	ReasonGoneReturned Reason = "gone_returned" // a kid is published and gone at once
)

// BrokenError reports that a stored document is not a valid key set. It quotes only names and short values of the
// document.
type BrokenError struct {
	Name    Name
	Reason  Reason
	Err     error
	Issuers []IssuerURL // its issuer URLs; nil if they are unknown
}

func (e *BrokenError) Error() string { return fmt.Sprintf("key set %q is broken: %v", e.Name, e.Err) }
func (e *BrokenError) Unwrap() error { return e.Err }

// UnreadableError reports that one document cannot be read although its store answers: a file without permission, a
// symbolic link that leads nowhere, a file on a mount that hangs. Its message is that of Err.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// OfDocument reports whether err, from a Load, is about that one document, which is broken or cannot be read: other
// documents of the store may be readable. Every other error but [ErrNotFound] is about the store as a whole.
func OfDocument(err error) bool {
	_, unreadable := errors.AsType[*UnreadableError](err)
	return unreadable || isBroken(err)
}

func isBroken(err error) bool {
	_, broken := errors.AsType[*BrokenError](err)
	return broken
}

// ErrReasonRequired means that a transition needs a reason ([Change].Why) and was given none.
var ErrReasonRequired = errors.New("a reason is needed; it is recorded")

// LastKeyError reports that a transition would take the last key out of a key set in use.
type LastKeyError struct {
	Step   string // remove or revoke
	Key    KeyID
	KeySet Name
}

func (e *LastKeyError) Error() string {
	return fmt.Sprintf("%s key %s: it is the last key of %q", e.Step, e.Key, e.KeySet)
}

// GenerationError reports that a key set cannot be changed, since its generation is so high that publishers take no
// later one. [KeySet.Accept] lowers it.
type GenerationError struct {
	KeySet     Name
	Generation int64
}

func (e *GenerationError) Error() string {
	return fmt.Sprintf("update key set %q: its generation %d is so high that keypostd takes no change of it; it must be accepted first", e.KeySet, e.Generation)
}
