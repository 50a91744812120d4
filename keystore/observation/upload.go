package observation

import (
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// Upload is what else is to be known of a JWKS that was read back.
type Upload struct {
	By         string    `json:"by"`                  // who read it back
	Uploaded   time.Time `json:"uploadedAt,omitzero"` // when they had uploaded it; zero = it was only read
	Digest     string    `json:"digest"`              // SHA-256 of what was read, in hex
	Generation int64     `json:"generation"`          // of the key set that it was compared with
	Strangers  []Key     `json:"-"`                   // of what was read, the keys that the store never had; a record has them by itself
	Back       []Key     `json:"-"`                   // of what was read, the keys that are not published and had been taken away: see [Record.Back]
	Ours       bool      `json:"-"`                   // some of what was read are keys that the store has or had
	Adopted    bool      `json:"-"`                   // it was another's until now: what it had before is no intrusion
	Unreadable bool      `json:"-"`                   // it has a form that no gate reads, so that whoever holds it may know other keys than ours
	Compared   *Compared `json:"-"`                   // the version that it was compared with; a record keeps the newest; nil = not told
	Forced     bool      `json:"-"`                   // Compared is the newest, whatever is recorded
}

// Compared is a version of a key set that an upload was compared with. No version that was made before it may be uploaded.
type Compared struct {
	Generation int64  `json:"generation"`
	Digest     string `json:"digest,omitempty"` // [keystore.KeySet.Digest], in hex; empty = not known
	Gone       []Key  `json:"gone,omitempty"`   // the keys that have left it, the latest mostGone, oldest first; without a fingerprint where that is not known

	published []keystore.VerificationKey // only of a look that is recorded now
}

// ComparedWith returns how a record keeps s.
func ComparedWith(s keystore.KeySet) *Compared {
	return &Compared{Generation: s.Generation(), Digest: s.Digest().String(), Gone: latestGone(s.Gone()), published: published(s)}
}

func published(s keystore.KeySet) (keys []keystore.VerificationKey) {
	for _, k := range s.Keys() {
		keys = append(keys, k.VerificationKey)
	}
	return keys
}

func latestGone(lines []keystore.Gone) (keys []Key) {
	for _, g := range lines[max(0, len(lines)-mostGone):] {
		f, _ := g.Material()
		keys = append(keys, Key{g.ID, f})
	}
	return keys
}

// revived returns those of the keys that are gone from c.
func (c Compared) revived(keys []keystore.VerificationKey) (ids []keystore.KeyID) {
	for _, k := range keys {
		if slices.ContainsFunc(c.Gone, func(g Key) bool { return keystore.Gone{ID: g.ID, Fingerprint: g.Fingerprint}.Bars(k) }) {
			ids = append(ids, k.ID())
		}
	}
	return ids
}

// Older says how a stored key set is older than the newest version that an upload was compared with.
type Older struct {
	Stored   int64            `json:"storedGeneration"`
	Recorded int64            `json:"recordedGeneration"`
	Revived  []keystore.KeyID `json:"revived,omitempty"` // published keys that are gone from the recorded version
}

// Older returns how s is older than the newest version that an upload was compared with; nil if it is not. Two stores that were changed apart
// from each other may have one generation, and one that was put back and changed since a later one: of these, keys that are gone tell.
func (r Record) Older(s keystore.KeySet) *Older {
	newest := r.NewestCompared()
	if newest == nil {
		return nil
	}
	o := Older{s.Generation(), newest.Generation, newest.revived(published(s))}
	another := newest.Generation == s.Generation() && newest.Digest != "" && newest.Digest != ComparedWith(s).Digest
	if newest.Generation > s.Generation() || another || len(o.Revived) > 0 {
		return &o
	}
	return nil
}

// ReadBack returns the look that a JWKS read back at a time is. It is complete: a JWKS that is held has one place.
func ReadBack(at time.Time, u Upload, keys []keystore.VerificationKey) Look {
	l := Look{Start: at, End: at, Addresses: []string{}, Answers: 1, Keys: []Key{}, Upload: &u}
	for _, k := range keys {
		l.Keys = append(l.Keys, Key{k.ID(), k.Fingerprint()})
	}
	return l
}

// Stranger is a key that an upload had and the store never had, or that came back after it was taken away: somebody else may change what
// the relying party holds.
type Stranger struct {
	Key
	Back       bool      `json:"back,omitempty"`       // it is one of ours that was taken away before, such as one that was revoked
	Unreadable string    `json:"unreadable,omitempty"` // instead of a key: SHA-256, in hex, of a JWKS in a form that no gate reads
	At         time.Time `json:"at"`                   // when it was read last
}

// String names the stranger, in one line.
func (s Stranger) String() string {
	if s.Unreadable != "" {
		return "a JWKS in a form that is not read (SHA-256 " + text.OneLine(s.Unreadable, 64) + ")"
	}
	if s.Back {
		return text.OneLine(string(s.ID), 100) + " (taken away before)"
	}
	return text.OneLine(string(s.ID), 100)
}

// Back returns those of the keys of an upload that are neither in s nor were there when it was read last: of a key that s has had, that
// is one that somebody put back.
func (r Record) Back(s keystore.KeySet, keys []Key) (back []Key) {
	if r.Latest.Upload == nil || r.Latest.Upload.Unreadable {
		return nil
	}
	for _, k := range keys {
		published := slices.ContainsFunc(s.Keys(), func(h keystore.Key) bool { return h.ID() == k.ID && h.Fingerprint() == k.Fingerprint })
		if !published && Known(s, k) && !slices.Contains(r.Latest.Keys, k) {
			back = append(back, k)
		}
	}
	return back
}

// Failed is a try to bring an upload up to date that came to no reading, or has come to none yet; or after which the relying party
// takes no token all the same.
type Failed struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Why     string    `json:"why"`               // as a sentence
	Refused bool      `json:"refused,omitempty"` // the relying party takes no token of the key set, whatever keys it has
}

// NewestCompared returns the newest version of the key set that an upload was compared with; nil if there is none. Records of earlier
// versions of keypost have no more of it than the generation of the latest look.
func (r Record) NewestCompared() *Compared {
	if r.Newest == nil && r.Latest.Upload != nil {
		return &Compared{Generation: r.Latest.Upload.Generation}
	}
	return r.Newest
}

// newestWith returns the newest version after another look. It never goes back, whatever the look's clock says, unless that is forced:
// the look may be of somebody whose store is behind. So is one that was put back and changed since, however often: it publishes a key that
// is gone from the newest, which alone still tells.
func (r Record) newestWith(l Look) *Compared {
	was := r.NewestCompared()
	if l.Upload == nil || l.Upload.Compared == nil {
		return was
	}
	is := l.Upload.Compared
	if was == nil || l.Upload.Forced {
		return is
	}
	return was.newer(is)
}

// newer returns the newer of two versions: c unless the other one is later and publishes no key that is gone from c.
func (c *Compared) newer(is *Compared) *Compared {
	if len(c.revived(is.published)) > 0 {
		return c
	}
	if is.Generation > c.Generation || is.Generation == c.Generation && c.Digest == "" {
		return is
	}
	return c
}

// NewestRead returns the newer one of a version that was read from the store and the newest before, which is nil at first. One
// with a generation so high that no server takes it counts for nothing.
func NewestRead(was *Compared, s keystore.KeySet) *Compared {
	is := ComparedWith(s)
	switch {
	case s.Generation() >= keystore.MaxFirstGeneration, was != nil && s.Generation() >= was.Generation+keystore.MaxGenerationJump:
		return was
	case was != nil && was.newer(is) == was:
		return was
	}
	is.published = nil
	return is
}

// strangers adds those that l saw at a time.
func strangers(was []Stranger, l Look, at time.Time) []Stranger {
	var seen []Stranger
	if u := l.Upload; u != nil {
		for _, k := range u.Strangers {
			seen = append(seen, Stranger{Key: k, At: at})
		}
		for _, k := range u.Back {
			seen = append(seen, Stranger{Key: k, Back: true, At: at})
		}
		if u.Unreadable {
			seen = append(seen, Stranger{Unreadable: u.Digest, At: at})
		}
		if u.Adopted {
			was, seen = nil, nil
		}
	}
	all := slices.DeleteFunc(slices.Clone(was), func(s Stranger) bool {
		again := func(n Stranger) bool { return n.Key == s.Key && n.Unreadable == s.Unreadable }
		return slices.ContainsFunc(seen, again) || l.End.Sub(s.At) > Memory
	})
	all = append(all, seen...)
	return all[max(0, len(all)-most):]
}

// Uploads returns what the records say of uploads, whether a policy names them or not.
func Uploads(records []Record) (all keystore.Uploads) {
	for _, r := range records {
		if r.Vantage != "" || !keystore.IsUpload(r.Issuer) {
			continue
		}
		read := keystore.ReadBack{Upload: r.Issuer, At: r.Complete}
		if c := r.Latest.ClockAhead; c != nil {
			read.ClockAhead = keystore.Duration(*c)
		}
		for _, s := range r.Seen {
			read.Keys = append(read.Keys, keystore.ReadKey{ID: s.ID, Fingerprint: s.Fingerprint, Since: s.Since})
		}
		all = append(all, read)
	}
	return all
}
