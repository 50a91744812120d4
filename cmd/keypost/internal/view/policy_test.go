package view

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore/party"
)

// TestKnownParties: a new relying party needs its name and spellings here, its allowance in package keystore and its answers in
// the catalogue of findings.
func TestKnownParties(t *testing.T) {
	var named, answering []string
	for _, names := range knownParties {
		named = append(named, names[0])
	}
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			answering = append(answering, a.Party)
		}
	}
	slices.Sort(named)
	slices.Sort(answering)
	if want := party.Known(); !slices.Equal(named, want) || !slices.Equal(slices.Compact(answering), want) {
		t.Errorf("keystore knows %q, flags %q, and the catalogue has answers of %q", want, named, slices.Compact(answering))
	}
}

func TestRelyingParty(t *testing.T) {
	for name, want := range map[string]string{
		"aws": "aws", "amazn": "aws", "amazon": "aws", "awss": "aws", "google": "gcp", "azure": "entra", "kubernetes": "kube-apiserver", "snowflake": "", "x": "",
	} {
		got, known := relyingParty(name)
		if got != want || known != (name == want) {
			t.Errorf("relyingParty(%q) = %q, %v", name, got, known)
		}
	}
}
