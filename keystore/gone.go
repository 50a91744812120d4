package keystore

import "time"

// Departure is how a key left its key set.
type Departure string

// The ways to leave.
const (
	Removed Departure = "removed" // after its last token had run out
	Revoked Departure = "revoked" // at once
)

// Gone is the record of a key that was published once, a line of the member gone in the document. Neither its key ID nor
// its material is ever published again.
type Gone struct {
	ID          KeyID       `json:"kid"`
	Fingerprint Fingerprint `json:"fingerprint"`
	At          time.Time   `json:"at"`
	Why         Departure   `json:"why"`
	PublishedAt time.Time   `json:"publishedAt,omitzero"` // these three are the key's own dates; zero means "has not happened" or "not recorded"
	PromotedAt  time.Time   `json:"promotedAt,omitzero"`
	RetiredAt   time.Time   `json:"retiredAt,omitzero"`
}

// Bars reports whether p may not be published because of g: it has g's key ID or g's material. A key with the ID that
// Kubernetes would compute from g's material is not barred: else such a key, published first, could prevent g's
// revocation.
func (g Gone) Bars(p VerificationKey) bool { return g.ID == p.ID() || g.Fingerprint == p.Fingerprint() }

// goneLine returns the line that k leaves behind.
func goneLine(k Key, at time.Time, why Departure) Gone {
	return Gone{
		ID: k.ID(), Fingerprint: k.Fingerprint(), At: at, Why: why,
		PublishedAt: k.PublishedAt, PromotedAt: k.PromotedAt, RetiredAt: k.RetiredAt,
	}
}

// mergeGone joins lines of several key sets. Each key ID gets one line. Two keys that had the same ID get the second
// line under the ID computed from the second key, so that neither can come back.
func mergeGone(lines []Gone) []Gone {
	var merged []Gone
	ids, material := map[KeyID]bool{}, map[Fingerprint]bool{}
	for _, g := range lines {
		if ids[g.ID] {
			if g.ID = KeyID(g.Fingerprint); material[g.Fingerprint] || ids[g.ID] {
				continue
			}
		}
		ids[g.ID], material[g.Fingerprint] = true, true
		merged = append(merged, g)
	}
	return merged
}
