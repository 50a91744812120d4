package watch

import (
	"context"
	"errors"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Upload is what is known of a JWKS that a relying party holds, and that a policy names. Nobody is asked for it: the uploader has the
// credentials, and records what they read back.
type Upload struct {
	KeySet keystore.Name
	observation.UploadStatus
	NotCompared string    // why what was read back could not be read here; empty if it could
	Compared    time.Time // when that was tried
}

// UploadNotCompared is the trouble of an upload that what was read back could not be read here. The others are package verify's.
const UploadNotCompared verify.UploadTrouble = "not_compared"

// UploadTroubles returns every trouble.
func UploadTroubles() []verify.UploadTrouble {
	return []verify.UploadTrouble{verify.UploadBehind, verify.UploadUnread, verify.UploadStale, UploadNotCompared}
}

// Trouble returns that of an upload and why, as a sentence; empty if there is none.
func (u Upload) Trouble() (t verify.UploadTrouble, why string) {
	if u.NotCompared != "" {
		return UploadNotCompared, u.NotCompared
	}
	return verify.TroubleOf(u.UploadStatus, u.Compared)
}

// WentBack is a key set that the store holds in an older version than this watch, or an earlier run of it, has read: a backup
// was restored, or an old manifest applied.
type WentBack struct {
	KeySet keystore.Name
	observation.Older
}

// uploadsOf compares the uploads that the policy of a key set names.
func (w *Watcher) uploadsOf(ctx context.Context, s keystore.KeySet) (all []Upload) {
	if s.Withdrawn() {
		return nil
	}
	var records []observation.Record
	failed := map[string]string{} // why, by upload
	for _, party := range s.Policy().Uploads() {
		if w.c.Records == nil {
			failed[party] = "this watch was not told where observations are recorded"
			continue
		}
		switch r, err := w.c.Records.Load(ctx, s.Name(), observation.Subject{Issuer: party}); {
		case err == nil:
			records = append(records, r)
		case !errors.Is(err, keystore.ErrNotFound):
			failed[party] = text.OneLine(err.Error(), 400)
		}
	}
	for _, u := range observation.UploadsOf(s, records) {
		all = append(all, Upload{KeySet: s.Name(), UploadStatus: u, NotCompared: failed[u.Upload], Compared: time.Now()})
	}
	return all
}
