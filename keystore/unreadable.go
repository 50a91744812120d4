package keystore

import "errors"

// UnreadableError reports that one document cannot be read although its store answers: a file without permission, a
// symbolic link that leads nowhere, a file on a mount that hangs. Its message is that of Err.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// OfDocument reports whether an error of Load is about that one document, which is broken or cannot be read, so that
// the store's other documents may be readable. Every other error but [ErrNotFound] is trouble of the store: a server
// that fails for one key set fails for all.
func OfDocument(err error) bool {
	_, broken := errors.AsType[*BrokenError](err)
	_, unreadable := errors.AsType[*UnreadableError](err)
	return broken || unreadable
}
