package lastgood

import "github.com/keypost/keypost/keystore"

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
		if id, returns := s.returning(was); returns {
			return Reject(ReasonGoneReturned, "key %s was withdrawn with the last good version and never comes back; add the issuer again with new keys", id)
		}
	}
	return s.keepsIssuers(was)
}

// returning returns the ID of a key that the version publishes and whose key ID or material the tombstone held. What was
// gone by then, keepsKeys refuses.
func (s *Summary) returning(tombstone *Summary) (id string, returns bool) {
	held, here := tombstone.keys.keyring(), s.keys.keyring()
	for id := range s.keys.ids() {
		if _, kid := held.byKid[id]; kid || held.material[here.byKid[id]] {
			return id, true
		}
	}
	return "", false
}

// keepsKeys returns nil if every key of was is still published or in gone. It compares kids and key material: another key
// under a kid that relying parties trust is an attack.
func (s *Summary) keepsKeys(was *Summary) *Rejection {
	here, left, served := s.keys.keyring(), s.gone.keyring(), was.keys.keyring()
	for id := range was.keys.ids() {
		if r := keepsKey(id, served.byKid[id], here, left); r != nil {
			return r
		}
	}
	goneBefore := was.gone.keyring()
	for id := range was.gone.ids() {
		_, back := here.byKid[id]
		_, kept := left.byKid[id]
		f := goneBefore.byKid[id]
		if back || !kept || f != "" && !left.material[f] {
			return Reject(ReasonGoneReturned, "key %s is gone for good, but its line in gone has vanished or changed, or it is published again", id)
		}
	}
	return nil
}

// keepsKey returns nil if the key with that ID and fingerprint is published or in gone. A line in gone counts only if it
// is known to be about that key: else the key could come back under another kid.
func keepsKey(id string, f keystore.Fingerprint, here, left keyring) *Rejection {
	if g, published := here.byKid[id]; published {
		if g != f {
			return Reject(ReasonKeyChanged, "key %s is another key than in the last good version (fingerprint %s, was %s); the key behind a kid never changes", id, g, f)
		}
		return nil
	}
	g, gone := left.byKid[id]
	switch {
	case !gone:
		return Reject(ReasonKidMissing, "it lacks key %s of the last good version without a line in gone", id)
	case left.material[f]:
		return nil
	case g == "":
		return Reject(ReasonKidMissing, "its line in gone for key %s of the last good version lacks the key's fingerprint: %s", id, f)
	}
	return Reject(ReasonKeyChanged, "its line in gone for key %s is about another key than that of the last good version, whose fingerprint is %s", id, f)
}

func (s *Summary) keepsIssuers(was *Summary) *Rejection {
	if was.withdrawn || s.withdrawn {
		return nil
	}
	here := map[string]bool{}
	for u := range s.urls.each() {
		here[u] = true
	}
	for u := range was.urls.each() {
		if !here[u] {
			return Reject(ReasonURLDropped, "it lacks the issuer URL %s of the last good version; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}
