package keystore

import (
	"cmp"
	"time"
)

// Departure is how a key left its key set.
type Departure string

// The ways to leave.
const (
	Removed Departure = "removed" // after its last token had run out
	Revoked Departure = "revoked" // at once
)

// Gone is the record of a key that was published once, a line of the member gone in the document. Neither its key ID nor
// its material is ever published again.
//
// Documents from before fingerprints were recorded have lines without one, and for an imported key a second line under
// its computed ID. [Gone.Material] reads both forms.
type Gone struct {
	ID          KeyID       `json:"kid"`
	Fingerprint Fingerprint `json:"fingerprint,omitempty"` // empty in a line of an earlier version
	At          time.Time   `json:"at"`
	Why         Departure   `json:"why"`
	PublishedAt time.Time   `json:"publishedAt,omitzero"` // these three are the key's own dates; zero means "has not happened" or "not recorded"
	PromotedAt  time.Time   `json:"promotedAt,omitzero"`
	RetiredAt   time.Time   `json:"retiredAt,omitzero"`
}

// Material returns the fingerprint of the key that left, and whether it is known. A line without one that has the form
// of a computed kid stands for the key with that fingerprint.
func (g Gone) Material() (Fingerprint, bool) {
	if g.Fingerprint != "" {
		return g.Fingerprint, true
	}
	if f := Fingerprint(g.ID); f.valid() {
		return f, true
	}
	return "", false
}

// Bars reports whether p may not be published because of g: it has g's key ID or g's material. A key with the ID that
// Kubernetes would compute from g's material is not barred: else such a key, published first, could prevent g's
// revocation.
func (g Gone) Bars(p VerificationKey) bool { return g.ID == p.id || g.material() == p.fingerprint }

// material is [Gone.Material] for comparison only: a kid that has not the form of a fingerprint equals none.
func (g Gone) material() Fingerprint { return cmp.Or(g.Fingerprint, Fingerprint(g.ID)) }

// gone returns the line that k leaves behind.
func (k Key) gone(at time.Time, why Departure) Gone {
	return Gone{
		ID: k.id, Fingerprint: k.fingerprint, At: at, Why: why,
		PublishedAt: k.PublishedAt, PromotedAt: k.PromotedAt, RetiredAt: k.RetiredAt,
	}
}

// goneIndex is an index of lines in gone.
type goneIndex struct {
	ids      map[KeyID]int
	material map[Fingerprint]int
}

func newGoneIndex(lines []Gone) goneIndex {
	y := goneIndex{make(map[KeyID]int, len(lines)), make(map[Fingerprint]int, len(lines))}
	for i, g := range lines {
		y.add(g, i)
	}
	return y
}

func (y goneIndex) add(g Gone, i int) {
	y.ids[g.ID] = i
	y.material[g.material()] = i
}

// of returns the index of the line that bars p, as [Gone.Bars] has it.
func (y goneIndex) of(p VerificationKey) (int, bool) {
	if i, ok := y.ids[p.id]; ok {
		return i, true
	}
	i, ok := y.material[p.fingerprint]
	return i, ok
}

// mergeGone joins lines of several key sets. Each key ID gets one line. Two keys that had the same ID get the second
// line under the ID computed from the second key, so that neither can come back.
func mergeGone(lines []Gone) []Gone {
	var merged []Gone
	y := newGoneIndex(nil)
	taken := map[KeyID]bool{}
	for _, g := range lines {
		f, known := g.Material()
		if taken[g.ID] {
			if _, barred := y.material[f]; barred || !known || taken[KeyID(f)] {
				continue
			}
			g.ID = KeyID(f)
		}
		taken[g.ID] = true
		y.add(g, len(merged))
		merged = append(merged, g)
	}
	return merged
}
