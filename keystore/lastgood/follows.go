package lastgood

import (
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Follows returns nil if the version may replace was, the last good one, or nil for none. An issuer URL ends only with a
// tombstone, a key only with its line in gone, and neither with an older version of the document.
func (s *Summary) Follows(was *Summary) *Rejection {
	switch {
	case was == nil && s.generation > keystore.MaxFirstGeneration:
		return Reject(ReasonGenerationJump, "its generation is %d; a key set without a last good version begins at %d at most, so that it can go on; it must be accepted first, which lowers it", s.generation, int64(keystore.MaxFirstGeneration))
	case was == nil:
		return nil
	case s.generation < was.generation:
		return Reject(ReasonOlderGeneration, "its generation is %d, older than %d of the last good version", s.generation, was.generation)
	case s.generation == was.generation && s.digest != was.digest:
		return Reject(ReasonSameGeneration, "its generation is %d as in the last good version, but its content differs", s.generation)
	case s.generation == was.generation:
		return nil
	case s.generation-was.generation > keystore.MaxGenerationJump:
		return Reject(ReasonGenerationJump, "its generation is %d, more than %d beyond %d of the last good version; it must be accepted first, which lowers it", s.generation, keystore.MaxGenerationJump, was.generation)
	}
	if r := s.keepsKeys(was); r != nil {
		return r
	}
	if was.withdrawn && !s.withdrawn { // by hand: KeySet.Reopen leaves every key behind
		held := slices.Collect(maps.Values(was.keys))
		for _, id := range slices.Sorted(maps.Keys(s.keys)) {
			if _, has := was.keys[id]; has || slices.Contains(held, s.keys[id]) {
				return Reject(ReasonGoneReturned, "key %s was withdrawn with the last good version and never comes back; add the issuer again with new keys", id)
			}
		}
	}
	for _, u := range was.served() {
		if !s.withdrawn && !slices.Contains(s.issuers, u) {
			return Reject(ReasonURLDropped, "the issuer URL %s of the last good version is not in it; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}

// keepsKeys returns nil if every key of was is still published or in gone. It compares kids and key material: another key
// under a kid that relying parties trust is an attack.
func (s *Summary) keepsKeys(was *Summary) *Rejection {
	gone, material := map[keystore.KeyID]bool{}, map[keystore.Fingerprint]bool{}
	for _, g := range s.gone {
		gone[g.ID], material[g.Fingerprint] = true, true
	}
	for _, id := range slices.Sorted(maps.Keys(was.keys)) {
		f := was.keys[id]
		switch is, published := s.keys[id]; {
		case published && is != f:
			return Reject(ReasonKeyChanged, "key %s is another key than in the last good version (fingerprint %s, was %s); the key behind a kid never changes", id, is, f)
		case !published && !gone[id]:
			return Reject(ReasonKidMissing, "key %s of the last good version is neither published nor gone", id)
		case !published && !material[f]: // the key could come back under another kid
			return Reject(ReasonKeyChanged, "its line in gone for key %s is about another key than that of the last good version, whose fingerprint is %s", id, f)
		}
	}
	for _, g := range was.gone {
		if _, back := s.keys[g.ID]; back || !gone[g.ID] || !material[g.Fingerprint] {
			return Reject(ReasonGoneReturned, "key %s is gone for good, but its line in gone has vanished or changed, or it is published again", g.ID)
		}
	}
	return nil
}
