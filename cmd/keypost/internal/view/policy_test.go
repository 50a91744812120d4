package view

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore/party"
)

// Each relying party that the catalogue of findings has answers of is known.
func TestKnownParties(t *testing.T) {
	known := party.Known()
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			if !slices.Contains(known, a.Party) {
				t.Errorf("%s: %q is not known", c.Code, a.Party)
			}
		}
	}
}
