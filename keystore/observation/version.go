package observation

import (
	"fmt"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Version is a version of a key set, as a record remembers it: what was uploaded, or read from the store.
type Version struct {
	Generation int64  `json:"generation"`
	Digest     string `json:"digest,omitempty"` // [keystore.KeySet.Digest], in hex; empty = not known
	Gone       []Key  `json:"gone,omitempty"`   // the keys that have left it, the latest mostGone, oldest first; without a fingerprint where that is not known
}

// mostGone bounds Version.Gone.
const mostGone = 512

func versionOf(s keystore.KeySet) *Version {
	v := &Version{Generation: s.Generation(), Digest: s.Digest().String()}
	lines := s.Gone()
	for _, g := range lines[max(0, len(lines)-mostGone):] {
		v.Gone = append(v.Gone, Key{g.ID, g.Fingerprint})
	}
	return v
}

// Older says how a stored key set is older than the newest version that was recorded.
type Older struct {
	Stored   int64            `json:"storedGeneration"`
	Recorded int64            `json:"recordedGeneration"`
	Revived  []keystore.KeyID `json:"revived,omitempty"` // published keys that are gone from the recorded version
}

func (o Older) String() string {
	if len(o.Revived) > 0 {
		return fmt.Sprintf("it has generation %d, and in generation %d, which was recorded before, what is published here is gone: %s", o.Stored, o.Recorded, ids(o.Revived))
	}
	if o.Stored == o.Recorded {
		return fmt.Sprintf("another version of generation %d was recorded before", o.Recorded)
	}
	return fmt.Sprintf("it has generation %d, and generation %d was recorded before", o.Stored, o.Recorded)
}

// Older returns how s is older than the newest version that was recorded; nil if it is not. A version that was put back and changed
// since may have the same generation, and then its content tells, or a later one: then its keys that are gone tell.
func (r Record) Older(s keystore.KeySet) *Older {
	if r.Newest == nil {
		return nil
	}
	o := Older{Stored: s.Generation(), Recorded: r.Newest.Generation}
	for _, k := range s.Keys() {
		gone := func(g Key) bool { return keystore.Gone{ID: g.ID, Fingerprint: g.Fingerprint}.Bars(k.VerificationKey) }
		if slices.ContainsFunc(r.Newest.Gone, gone) {
			o.Revived = append(o.Revived, k.ID())
		}
	}
	another := o.Stored == o.Recorded && r.Newest.Digest != "" && r.Newest.Digest != s.Digest().String()
	if o.Stored < o.Recorded || another || len(o.Revived) > 0 {
		return &o
	}
	return nil
}

// WithVersion returns the record after a version of the key set was read from the store. One with a generation so high that no
// server takes it counts for nothing.
func (r Record) WithVersion(s keystore.KeySet) Record {
	first := r.Newest == nil && s.Generation() < keystore.MaxFirstGeneration
	later := r.Newest != nil && s.Generation() > r.Newest.Generation && s.Generation() < r.Newest.Generation+keystore.MaxGenerationJump
	if first || later && r.Older(s) == nil {
		r.Newest = versionOf(s)
	}
	return r
}
