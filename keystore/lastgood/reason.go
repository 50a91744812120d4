package lastgood

import (
	"errors"
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// The reasons why a version of a key set does not replace the last good one, which stays. They are labels of metrics.
const (
	// The document does not parse.
	ReasonBroken       = keystore.ReasonBroken
	ReasonNewerVersion = keystore.ReasonNewerVersion

	// It does not follow the last good version.
	ReasonOlderGeneration keystore.Reason = "older_generation" // a restored backup, a Git revert
	ReasonSameGeneration  keystore.Reason = "same_generation"  // that of the last good version, with other content
	ReasonGenerationJump  keystore.Reason = "generation_jump"  // so high that nothing could follow it
	ReasonKidMissing      keystore.Reason = "kid_missing"      // a key is neither published nor gone
	ReasonKeyChanged      keystore.Reason = "key_changed"      // a kid stands for another key than before
	ReasonGoneReturned                    = keystore.ReasonGoneReturned
	ReasonURLDropped      keystore.Reason = "url_dropped" // an issuer URL is not in it

	// Something beside the document speaks against it.
	ReasonURLConflict     keystore.Reason = "url_conflict"      // another key set has one of its issuer URLs
	ReasonURLNotPermitted keystore.Reason = "url_not_permitted" // no pattern allows its name one of its issuer URLs
	ReasonDev             keystore.Reason = "dev"               // a development key set in production

	// ReasonUnread is about a key set whose documents nobody reads (reach copies), and whose issuer URLs are none of the
	// reader's: see [Rejection.Expected].
	ReasonUnread keystore.Reason = "unread"

	// There is no document to judge.
	ReasonMissing    keystore.Reason = "missing"    // the store does not hold it
	ReasonUnreadable keystore.Reason = "unreadable" // the store cannot return it
)

// Reasons returns every reason of a rejection but the expected one. A metric has a line for each, so that an alert sees a 0 before the first
// rejection.
func Reasons() []keystore.Reason {
	return []keystore.Reason{
		ReasonBroken, ReasonNewerVersion,
		ReasonOlderGeneration, ReasonSameGeneration, ReasonGenerationJump, ReasonKidMissing, ReasonKeyChanged, ReasonGoneReturned, ReasonURLDropped,
		ReasonURLConflict, ReasonURLNotPermitted, ReasonDev,
		ReasonMissing, ReasonUnreadable,
	}
}

// Rejection is the reason why a version of a key set does not replace the last good one; nil if it does.
type Rejection struct {
	Reason  keystore.Reason
	Message string               // one clause that begins with "it" or "its", or names a key
	URLs    []keystore.IssuerURL // of the document, as far as the key set may get them later; nil if that is not known, or none
	Final   bool                 // see Waits
}

// Reject returns a Rejection that is final.
func Reject(r keystore.Reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: r, Message: fmt.Sprintf(format, args...), Final: true}
}

// RejectError returns the Rejection for an error of [keystore.Reader.Load]. It returns nil for nil and for
// [keystore.ErrNotFound], for which there is [Missing].
func RejectError(err error) *Rejection {
	broken, isBroken := errors.AsType[*keystore.BrokenError](err)
	switch {
	case err == nil || errors.Is(err, keystore.ErrNotFound):
		return nil
	case isBroken:
		return &Rejection{Reason: broken.Reason, Message: broken.Err.Error(), URLs: broken.Issuers, Final: true}
	}
	return &Rejection{Reason: ReasonUnreadable, Message: err.Error(), Final: keystore.OfDocument(err)}
}

// Is reports whether r is a rejection for that reason.
func (r *Rejection) Is(reason keystore.Reason) bool { return r != nil && r.Reason == reason }

// Expected reports whether nothing is wrong: the key set must not be served here. It counts as nobody's failure, and nothing waits for it.
func (r *Rejection) Expected() bool { return r.Is(ReasonUnread) }

// Waits reports whether r may end by waiting: the store does not answer, or the document of another key set, which may have the
// issuer URL, cannot be read. All others end when somebody changes a document, or the rights to it.
func (r *Rejection) Waits() bool { return r != nil && !r.Final }

// Transient reports whether r may end although the document does not change, so that the document is read again.
func (r *Rejection) Transient() bool { return r.Is(ReasonURLConflict) || r.Is(ReasonUnreadable) }

// IsNew reports whether r is to be logged after was.
func (r *Rejection) IsNew(was *Rejection) bool {
	return r != nil && (was == nil || was.Reason != r.Reason || was.Message != r.Message)
}
