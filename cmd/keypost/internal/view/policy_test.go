package view

import "testing"

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
