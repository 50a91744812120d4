package observation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// CopyState is how an upload that a policy names compares with the key set, in a word.
type CopyState string

// The states of an upload.
const (
	CopyCurrent CopyState = "current" // it has the published keys and no other
	CopyUnread  CopyState = "unread"  // nothing was ever read back of it
	CopyBehind  CopyState = "behind"  // it lacks a published key
	CopyAhead   CopyState = "ahead"   // it has a key that is not published
)

// Copy is an upload that a policy names, as it was read back last.
type Copy struct {
	Upload   string           `json:"upload"`
	State    CopyState        `json:"state"`
	ReadAt   time.Time        `json:"readAt,omitzero"`
	By       string           `json:"by,omitempty"`
	Lacks    []keystore.KeyID `json:"lacks,omitempty"`    // published keys
	Extra    []Key            `json:"extra,omitempty"`    // keys that it has and that are not published
	Failed   *Failed          `json:"failed,omitempty"`   // the last try to bring it up to date; nil = it was read back
	Intruded []Stranger       `json:"intruded,omitempty"` // keys that it had of late and that somebody else put there
	Older    *Older           `json:"older,omitempty"`    // the store is older than what the copy was compared with; nil = it is not
	Broken   bool             `json:"broken"`             // tokens are refused or trusted by it that are not to be, or nobody knows

	others []Key // of Extra and Intruded, those under an ID that the key set has or had another key under
}

// readLately is how old a reading may be that speaks for a copy: whoever may write to the relying party may have changed it since, or
// the timer of who reads it back has ended.
const readLately = 24 * time.Hour

// Stale reports whether what was read back is too old to say that the relying party still has it.
func (c Copy) Stale(now time.Time) bool {
	return c.State != CopyUnread && now.Sub(c.ReadAt) > readLately
}

// Copies returns how each upload that the policy of s names compares with s, by what the records say of it. Keys are compared by
// kid and material.
func Copies(s keystore.KeySet, records []Record) (all []Copy) {
	for _, party := range s.Policy().Uploads() {
		c := Copy{Upload: party, State: CopyUnread, Broken: true}
		if i := slices.IndexFunc(records, func(r Record) bool { return r.Place() == Place{Issuer: party} }); i >= 0 {
			r := records[i]
			if !r.Latest.End.IsZero() {
				c.compare(s, r.Latest)
			}
			c.Failed, c.Older = r.Failed, r.Older(s)
			c.Intruded = slices.DeleteFunc(slices.Clone(r.Strangers), func(k Stranger) bool { return !k.Back && Known(s, k.Key) })
			for _, k := range c.Intruded {
				c.note(s, k.Key)
			}
		}
		all = append(all, c)
	}
	return all
}

func (c *Copy) compare(s keystore.KeySet, l Look) {
	c.State, c.ReadAt, c.Broken = CopyCurrent, l.End, false
	if l.Upload != nil {
		c.By = l.Upload.By
	}
	published := map[Key]bool{}
	for _, k := range s.Keys() {
		key := Key{k.ID(), k.Fingerprint()}
		published[key] = true
		if !slices.Contains(l.Keys, key) {
			c.Lacks = append(c.Lacks, k.ID())
			c.Broken = c.Broken || k.State != keystore.Next // of which there is no token yet
		}
	}
	for _, k := range l.Keys {
		if published[k] {
			continue
		}
		c.Extra = append(c.Extra, k)
		c.note(s, k)
		removed := func(g keystore.Gone) bool { // of which there is no token any more
			f, known := g.Material()
			return g.Why == keystore.Removed && g.ID == k.ID && known && f == k.Fingerprint
		}
		c.Broken = c.Broken || !slices.ContainsFunc(s.Gone(), removed)
	}
	switch {
	case len(c.Lacks) > 0:
		c.State = CopyBehind
	case len(c.Extra) > 0:
		c.State = CopyAhead
	}
}

// note keeps a key in mind that is another than that of s under its ID.
func (c *Copy) note(s keystore.KeySet, k Key) {
	used := slices.ContainsFunc(s.Keys(), func(h keystore.Key) bool { return h.ID() == k.ID }) ||
		slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool { return g.ID == k.ID })
	if used && !Known(s, k) {
		c.others = append(c.others, k)
	}
}

// Known reports whether s has or had a key, by its material where that is known.
func Known(s keystore.KeySet, k Key) bool {
	return slices.ContainsFunc(s.Keys(), func(h keystore.Key) bool { return h.ID() == k.ID && h.Fingerprint() == k.Fingerprint }) ||
		slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool {
			f, known := g.Material()
			return g.ID == k.ID && (!known || f == k.Fingerprint)
		})
}

// Refused reports whether the relying party was seen, the last time, to take no token of the key set, whatever keys it has.
func (c Copy) Refused() bool { return c.Failed != nil && c.Failed.Refused }

// Failure says that the last try to upload or to read back came to no reading, or that no token is taken whatever was read, as a part
// of a sentence; empty if neither is so.
func (c Copy) Failure() string {
	if c.Failed == nil {
		return ""
	}
	if c.Failed.Refused {
		return fmt.Sprintf("who holds the copy %s takes no token, as was seen at %s: %s", text.OneLine(c.Upload, 300), c.Failed.At.UTC().Format(time.RFC3339), text.OneLine(c.Failed.Why, 300))
	}
	return fmt.Sprintf("the last try to bring the copy %s up to date came to no reading, at %s: %s", text.OneLine(c.Upload, 300), c.Failed.At.UTC().Format(time.RFC3339), text.OneLine(c.Failed.Why, 300))
}

// Intrusion says which keys it had that somebody else put there, as a part of a sentence; empty if there were none of late.
func (c Copy) Intrusion() string {
	n := len(c.Intruded)
	if n == 0 {
		return ""
	}
	var had []string
	for _, s := range c.Intruded {
		had = append(had, c.named(s.Key, s.String()))
	}
	why := "which the store never had"
	if slices.ContainsFunc(c.Intruded, func(s Stranger) bool { return s.Back }) {
		why += " or has taken away"
	}
	return fmt.Sprintf("the copy %s had %s, %s, last at %s: somebody else uploaded", text.OneLine(c.Upload, 300), text.List(had, 3), why, c.Intruded[n-1].At.UTC().Format(time.RFC3339))
}

// Problem says all that is wrong with the copy, as a part of a sentence; empty if nothing is.
func (c Copy) Problem() string {
	return strings.Join(slices.DeleteFunc([]string{c.Outdated(), c.Difference(), c.Failure(), c.Intrusion()}, func(s string) bool { return s == "" }), "; ")
}

// Outdated says that the store is older than what the copy was compared with, as a part of a sentence; empty if it is not. To upload would
// bring back what was revoked.
func (c Copy) Outdated() string {
	o := c.Older
	if o == nil {
		return ""
	}
	said := fmt.Sprintf("the store has generation %d of the key set, and the copy %s was compared with generation %d", o.Stored, text.OneLine(c.Upload, 300), o.Recorded)
	switch {
	case len(o.Revived) > 0:
		return said + ", in which what is published here is gone: " + ids(o.Revived)
	case o.Stored == o.Recorded:
		return said + ", another version"
	}
	return said + " already"
}

// Difference says how what was read back last differs from what is published, as a part of a sentence; empty if it does not.
func (c Copy) Difference() string {
	name := text.OneLine(c.Upload, 300)
	switch c.State {
	case CopyCurrent:
		return ""
	case CopyUnread:
		return fmt.Sprintf("of the copy %s nothing was read back yet", name)
	case CopyBehind:
		if len(c.Extra) == 0 {
			return fmt.Sprintf("the copy %s is behind: at %s it lacked %s", name, c.ReadAt.UTC().Format(time.RFC3339), ids(c.Lacks))
		}
		return fmt.Sprintf("the copy %s is behind: at %s it lacked %s, and had %s, not published", name, c.ReadAt.UTC().Format(time.RFC3339), ids(c.Lacks), c.extra())
	}
	return fmt.Sprintf("the copy %s is ahead: at %s it had %s, not published", name, c.ReadAt.UTC().Format(time.RFC3339), c.extra())
}

// extra names some of the keys that are not published.
func (c Copy) extra() string {
	var words []string
	for _, k := range c.Extra {
		words = append(words, c.named(k, text.OneLine(string(k.ID), 100)))
	}
	return text.List(words, 3)
}

// named returns the name of a key, or says that its ID is that of another one.
func (c Copy) named(k Key, name string) string {
	if slices.Contains(c.others, k) {
		return "another key under the ID " + name
	}
	return name
}

// ids names some of the keys; a kid in a record is what somebody else may have chosen.
func ids(list []keystore.KeyID) string {
	words := make([]string, len(list))
	for i, id := range list {
		words[i] = text.OneLine(string(id), 100)
	}
	return text.List(words, 3)
}
