package observation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/party"
)

// Upload is what else is known of a JWKS that was read back.
type Upload struct {
	By       string    `json:"by"`                  // who read it back
	Uploaded time.Time `json:"uploadedAt,omitzero"` // when they had uploaded it; zero = it was only read
}

// Failed is a try to bring an upload up to date that failed, or after which the relying party takes no token all the same.
type Failed struct {
	At  time.Time `json:"at"`
	By  string    `json:"by"`
	Why string    `json:"why"` // as a sentence
}

// ReadBack returns the look that a JWKS read back at a time is. It is complete: a JWKS that is held has one place.
func ReadBack(at time.Time, u Upload, keys []keystore.VerificationKey) Look {
	l := Look{Start: at, End: at, Addresses: []string{}, Answers: 1, Keys: []Key{}, Upload: &u}
	for _, k := range keys {
		l.Keys = append(l.Keys, Key{k.ID(), k.Fingerprint()})
	}
	return l
}

// Uploads returns what the records say of uploads, whether a policy names them or not.
func Uploads(records []Record) (all gate.Uploads) {
	for _, r := range records {
		if r.Vantage != "" || !party.IsUpload(r.Issuer) {
			continue
		}
		read := gate.ReadBack{Upload: r.Issuer, At: r.Complete}
		if c := r.Latest.ClockAhead; c != nil {
			read.ClockAhead = keystore.Duration(*c)
		}
		for _, s := range r.Seen {
			read.Keys = append(read.Keys, gate.ReadKey{ID: s.ID, Fingerprint: s.Fingerprint, Since: s.Since})
		}
		all = append(all, read)
	}
	return all
}

// UploadState is how an upload compares with the key set, in a word.
type UploadState string

// The states of an upload.
const (
	UploadCurrent UploadState = "current" // it has the published keys and no other
	UploadUnread  UploadState = "unread"  // nothing was ever read back of it
	UploadBehind  UploadState = "behind"  // it does not have a published key, or has another one
)

// UploadStatus is how an upload that a policy names compares with the key set, as it was read back last.
type UploadStatus struct {
	Upload string           `json:"upload"`
	State  UploadState      `json:"state"`
	ReadAt time.Time        `json:"readAt,omitzero"`
	By     string           `json:"by,omitempty"`
	Lacks  []keystore.KeyID `json:"lacks,omitempty"`  // published keys
	Extra  []Key            `json:"extra,omitempty"`  // keys that it has and that are not published
	Failed *Failed          `json:"failed,omitempty"` // the last try to bring it up to date; nil = it was read back
	Older  *Older           `json:"older,omitempty"`  // the store is older than what was uploaded; nil = it is not
	Broken bool             `json:"broken"`           // it refuses or trusts tokens that it should not, or nobody knows
}

// readLately is how old a reading may be that speaks for an upload: anyone who may write to the relying party may have changed it since,
// or the timer of who reads it back has ended.
const readLately = 24 * time.Hour

// Stale reports whether what was read back is too old to say that the relying party still has it.
func (u UploadStatus) Stale(now time.Time) bool {
	return u.State != UploadUnread && now.Sub(u.ReadAt) > readLately
}

// UploadsOf returns how each upload that the policy of s names compares with s, by what the records say of it. Keys are compared by
// kid and material.
func UploadsOf(s keystore.KeySet, records []Record) (all []UploadStatus) {
	for _, party := range s.Policy().Uploads() {
		u := UploadStatus{Upload: party, State: UploadUnread, Broken: true}
		if i := slices.IndexFunc(records, func(r Record) bool { return r.Subject() == Subject{Issuer: party} }); i >= 0 {
			if r := records[i]; !r.Latest.End.IsZero() {
				u.compare(s, r.Latest)
			}
			u.Failed, u.Older = records[i].Failed, records[i].Older(s)
		}
		all = append(all, u)
	}
	return all
}

func (u *UploadStatus) compare(s keystore.KeySet, l Look) {
	u.State, u.ReadAt, u.Broken = UploadCurrent, l.End, false
	if l.Upload != nil {
		u.By = l.Upload.By
	}
	published := map[Key]bool{}
	for _, k := range s.Keys() {
		key := Key{k.ID(), k.Fingerprint()}
		published[key] = true
		if !slices.Contains(l.Keys, key) {
			u.Lacks = append(u.Lacks, k.ID())
			u.Broken = u.Broken || k.State != keystore.Next // a next key has signed no token yet
		}
	}
	for _, k := range l.Keys {
		if published[k] {
			continue
		}
		u.Extra = append(u.Extra, k)
		removed := func(g keystore.Gone) bool { // no token of it is left
			return g.Why == keystore.Removed && g.ID == k.ID && g.Fingerprint == k.Fingerprint
		}
		u.Broken = u.Broken || !slices.ContainsFunc(s.Gone(), removed)
	}
	if len(u.Lacks)+len(u.Extra) > 0 {
		u.State = UploadBehind
	}
}

// Problem says all that is wrong with the upload, as a part of a sentence; empty if nothing is.
func (u UploadStatus) Problem() string {
	var all []string
	name := text.OneLine(u.Upload, 300)
	if u.Older != nil {
		all = append(all, fmt.Sprintf("the store is older than the upload %s: %v", name, u.Older))
	}
	switch u.State {
	case UploadUnread:
		all = append(all, fmt.Sprintf("the upload %s was never read back", name))
	case UploadBehind:
		all = append(all, fmt.Sprintf("the upload %s is behind: at %s it %s", name, u.ReadAt.UTC().Format(time.RFC3339), u.difference()))
	}
	if f := u.Failed; f != nil {
		all = append(all, fmt.Sprintf("bringing the upload %s up to date failed at %s: %s", name, f.At.UTC().Format(time.RFC3339), text.OneLine(f.Why, 300)))
	}
	return strings.Join(all, "; ")
}

// difference says what the upload does not have and what else it has.
func (u UploadStatus) difference() string {
	var extra []keystore.KeyID
	for _, k := range u.Extra {
		extra = append(extra, k.ID)
	}
	switch {
	case len(extra) == 0:
		return "did not have " + ids(u.Lacks)
	case len(u.Lacks) == 0:
		return "had " + ids(extra) + ", not published"
	}
	return "did not have " + ids(u.Lacks) + ", and had " + ids(extra) + ", not published"
}

// ids names some of the keys; a kid in a record is what somebody else may have chosen.
func ids(list []keystore.KeyID) string {
	words := make([]string, len(list))
	for i, id := range list {
		words[i] = text.OneLine(string(id), 100)
	}
	return text.List(words, 3)
}
