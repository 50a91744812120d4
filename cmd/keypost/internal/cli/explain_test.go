package cli

import (
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

// One command uploads to all kinds that this version knows. A kind that nobody knows has none.
func TestSyncCommands(t *testing.T) {
	const copied, newer = "gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a/providers/prod-a", "newer-upload:auth/jwt"
	const other = "vault-upload:vault.example.com/auth/jwt"
	url, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	if err != nil {
		t.Fatal(err)
	}
	key, err := keystore.NewPublic(keys.EC(elliptic.P256(), 1).Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		parties []string
		want    string
	}{
		{[]string{"aws"}, ""},
		{[]string{newer}, ""},
		{[]string{newer, copied}, "keypost sync-keys prod-a"},
		{[]string{copied, other}, "keypost sync-keys prod-a"},
	} {
		set, err := keystore.New(keystore.Change{At: time.Now(), By: "me"}, keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{url},
			Keys: []keystore.VerificationKey{key}, Policy: keystore.Policy{RelyingParties: tt.parties}})
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Factory{}).Lines(SyncCommands(set)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.parties, got, tt.want)
		}
	}
}
