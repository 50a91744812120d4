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
		switch problem := u.Problem(); {
		case u.Older != nil, u.State == observation.UploadBehind && u.Broken:
			v.Fail("upload-behind", "%s", problem)
		case u.State == observation.UploadBehind:
			v.Warn("upload-behind", "%s", problem)
		case u.State == observation.UploadUnread:
			v.Fail("upload-unread", "%s", problem)
		case u.Failed != nil:
			unknown("upload-unread", "", "%s", problem)
		case u.Stale(time.Now()):
			unknown("upload-unread", "", "the upload %s had the published keys when it was read back last, at %s, and nobody has looked since", printable(u.Upload), stamp(u.ReadAt))
		default:
			v.OK("uploads", "the upload %s was read back at %s with the published keys", printable(u.Upload), stamp(u.ReadAt))
		}
	}
}
