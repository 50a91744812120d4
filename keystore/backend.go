package keystore

import "context"

// Backend stores opaque documents by name. It knows nothing of keys: [Store] parses, encodes and checks.
//
// Concurrency: all methods may be called concurrently, also by several processes on the same medium. Of several Puts
// with the same old revision exactly one succeeds, unless they write the same bytes.
//
// List returns every name with its current revision, or an error: a backend that cannot be sure that it saw everything
// returns an error, because a missing name raises an alert. A listing reads no documents where the medium allows that.
// Names that no key set can have may be listed, so that a misnamed file is reported rather than ignored.
//
// Get returns the document byte for byte, of one moment: never a mix of two versions, never a part. The error wraps
// [ErrNotFound] if and only if nothing is stored under n; a medium that is missing or does not answer is another error.
// It wraps a [*BrokenError], with the revision, if what is stored under n cannot be a document whatever it contains
// (too large, a directory, a misspelt file name), and an [*UnreadableError] if only that document cannot be read.
//
// Put stores doc under n if the stored revision is old, and returns the new revision; old == "" creates. It is durable
// when it returns nil. An error that wraps [ErrConflict] or [ErrReadOnly] means that this call wrote nothing, one that
// wraps [ErrNotDurable] that it wrote, and after any other error it may have written. A backend need not find out: Store
// reads back. A conflict or a refusal may also be the answer to a Put that was sent twice on the way; Store reads back
// after both. Callers pass a name that [Name.Check] accepts, a document of that name, and at most [MaxDocument] bytes.
//
// Once ctx is done, a method does nothing more and returns ctx.Err(), possibly wrapped. A Put that has begun to write
// may have written.
//
// Trust: documents that Get returns may come from anybody who can write to the medium, and that is everybody who can
// make relying parties trust keys.
type Backend interface {
	List(ctx context.Context) (map[Name]Revision, error)
	Get(ctx context.Context, n Name) ([]byte, Revision, error)
	Put(ctx context.Context, n Name, old Revision, doc []byte) (Revision, error)
}

// Watcher is an optional interface of a [Backend] or [Reader]. Watch calls changed with the names that may have changed,
// or without names if it does not know which, until ctx is done or the watch is lost (an error). It may miss changes and
// report too many: a poll runs beside it. changed must return quickly and may be called concurrently.
type Watcher interface {
	Watch(ctx context.Context, changed func(...Name)) error
}

// WatcherOf returns the backend of r if that is a Watcher, or r if that is one.
func WatcherOf(r Reader) (Watcher, bool) {
	var of any = r
	if st, ok := r.(*Store); ok {
		of = st.backend
	}
	w, ok := of.(Watcher)
	return w, ok
}
