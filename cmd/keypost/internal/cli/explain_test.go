package cli

import (
	"crypto/elliptic"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/test/keys"
)

// Nobody waits 68 years: what an answer allowed is forgotten long before.
func TestHintAtACachesGate(t *testing.T) {
	for edge, want := range map[time.Duration]string{
		time.Hour:                "try again at 2094-01-01T00:00:00Z",
		31 * 24 * time.Hour:      "what answers allowed is forgotten 31 days after it was seen last",
		1 << 31 * time.Second:    "what answers allowed is forgotten 31 days after it was seen last",
		time.Duration(1<<63 - 1): "what answers allowed is forgotten 31 days after it was seen last",
	} {
		gate := &keystore.NotYetError{Step: "promote", Gate: gate.GateCaches, Opens: time.Date(2094, 1, 1, 0, 0, 0, 0, time.UTC), Terms: []policy.Term{{What: "edge", Duration: edge}, {What: "client", Duration: edge}, {What: "clocks", Duration: 1}}}
		for _, err := range []error{explainedWrite(gate), (&Factory{}).AtGate(gate, keystore.KeySet{})} {
			if h, _ := errors.AsType[*HintedError](err); h == nil || !strings.Contains(fmt.Sprintf(h.format, h.args...), want) {
				t.Errorf("%v: %v; want %q", edge, h, want)
			}
		}
	}
}

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
