package lastgood

import (
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Summary has what must be known of a version of a key set to judge the next one. It is immutable. Publishers and mirrors
// keep one for each of many thousand key sets.
type Summary struct {
	generation int64
	digest     keystore.Digest
	issuers    []keystore.IssuerURL
	keys       map[keystore.KeyID]keystore.Fingerprint // the published ones
	gone       []keystore.Gone
	withdrawn  bool
}

// SummaryOf returns the Summary of a version.
func SummaryOf(v keystore.KeySet) Summary {
	s := Summary{generation: v.Generation(), digest: v.Digest(), issuers: v.Issuers(), gone: v.Gone(), withdrawn: v.Withdrawn()}
	s.keys = make(map[keystore.KeyID]keystore.Fingerprint, len(v.Keys()))
	for _, k := range v.Keys() {
		s.keys[k.ID()] = k.Fingerprint()
	}
	return s
}

// Generation returns that of the version.
func (s *Summary) Generation() int64 { return s.generation }

// Digest returns [keystore.KeySet.Digest] of the version.
func (s *Summary) Digest() keystore.Digest { return s.digest }

// Withdrawn reports whether the version is a tombstone.
func (s *Summary) Withdrawn() bool { return s.withdrawn }

// Issuers returns the issuer URLs; the first is canonical.
func (s *Summary) Issuers() []keystore.IssuerURL { return slices.Clone(s.issuers) }

// Gone returns the lines in gone.
func (s *Summary) Gone() []keystore.Gone { return slices.Clone(s.gone) }

// Kids returns the IDs of the published keys, sorted.
func (s *Summary) Kids() []keystore.KeyID { return slices.Sorted(maps.Keys(s.keys)) }

// served returns the issuer URLs of a version that is in use: none of a tombstone, and none of nil.
func (s *Summary) served() []keystore.IssuerURL {
	if s == nil || s.withdrawn {
		return nil
	}
	return s.issuers
}

// serves reports whether a version that is in use has an issuer URL at r.
func (s *Summary) serves(r keystore.Route) bool {
	return slices.ContainsFunc(s.served(), func(u keystore.IssuerURL) bool { return u.Route() == r })
}
