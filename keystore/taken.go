package keystore

import (
	"fmt"
	"slices"
	"strings"
)

// Algorithms returns the algorithms of tokens that a relying party takes where it takes fewer than a key set may have; nil for the
// others. Sources: https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers,
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations.
func Algorithms(party string) []string {
	switch party {
	case "entra":
		return []string{"RS256"}
	case "gcp":
		return []string{"RS256", "ES256"}
	}
	return nil
}

// Takes reports whether a relying party takes tokens that are signed with a key.
func Takes(party string, k VerificationKey) bool {
	takes := Algorithms(party)
	return takes == nil || slices.Contains(takes, k.Alg())
}

// NotTakenError reports a key whose tokens a declared relying party refuses.
type NotTakenError struct {
	Key   KeyID
	Alg   string
	Party string
}

func (e *NotTakenError) Error() string {
	return fmt.Sprintf("key %s is for %s, and the relying party %s takes tokens signed with %s alone", e.Key, e.Alg, e.Party,
		strings.Join(Algorithms(e.Party), " or "))
}

// NotTaken returns an error for each of the keys and each relying party of the policy that refuses its tokens.
func (p Policy) NotTaken(keys ...VerificationKey) (refused []*NotTakenError) {
	for _, k := range keys {
		for _, party := range p.Parties() {
			if !Takes(party, k) {
				refused = append(refused, &NotTakenError{k.ID(), k.Alg(), party})
			}
		}
	}
	return refused
}
