package verify

import (
	"context"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// checkUploads compares what was read back of each upload that the policy names with the stored keys. Nobody is asked: the uploader
// has the credentials.
func (v *visitor) checkUploads(ctx context.Context) {
	set := v.known
	if set.Withdrawn() || len(set.Policy().Uploads()) == 0 {
		return
	}
	const where = "say where observations are: keypost verify ISSUER --observations URL; mend or remove a damaged document there"
	unknown := v.WarnWith
	if set.Policy().Reach == keystore.ReachCopies {
		unknown = v.FailWith // nothing at all was compared
	}
	if v.o.Uploads == nil {
		unknown("upload-unread", where, "key set %q names uploads that relying parties hold, and nothing says what was read back of them", set.Name())
		return
	}
	records, err := v.o.Uploads(ctx, set)
	if err != nil {
		unknown("upload-unread", where, "what was read back of the uploads that key set %q names cannot be read: %v", set.Name(), err)
		return
	}
	for _, u := range observation.UploadsOf(set, records) {
		switch trouble, why := TroubleOf(u, time.Now()); {
		case trouble == "":
			v.OK("uploads", "the upload %s was read back at %s with the published keys", printable(u.Upload), stamp(u.ReadAt))
		case trouble == UploadBehind && u.Older == nil && !u.Broken:
			v.Warn("upload-behind", "%s", why)
		case trouble == UploadBehind:
			v.Fail("upload-behind", "%s", why)
		case trouble == UploadUnread:
			v.Fail("upload-unread", "%s", why)
		default:
			unknown("upload-unread", "", "%s", why)
		}
	}
}

// UploadTrouble is why an upload is not known to have the published keys and no other.
type UploadTrouble string

// The troubles of an upload.
const (
	UploadBehind = UploadTrouble(observation.UploadBehind) // it does not have a published key, or has another one
	UploadUnread = UploadTrouble(observation.UploadUnread) // nothing was ever read back
	UploadStale  = UploadTrouble("stale")                  // nobody has read it back for a day, or the last try failed
)

// TroubleOf returns the trouble of an upload and why, as a sentence; empty if there is none.
func TroubleOf(u observation.UploadStatus, now time.Time) (t UploadTrouble, why string) {
	switch {
	case u.Older != nil:
		return UploadBehind, u.Problem()
	case u.State != observation.UploadCurrent:
		return UploadTrouble(u.State), u.Problem()
	case u.Failed != nil:
		return UploadStale, u.Problem()
	case u.Stale(now):
		return UploadStale, "the upload " + printable(u.Upload) + " had the published keys when it was read back last, at " + stamp(u.ReadAt) + ", and nobody has looked since"
	}
	return "", ""
}
