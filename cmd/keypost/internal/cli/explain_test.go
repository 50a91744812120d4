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
	"github.com/keypost/keypost/keystore/party"
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

// What uploads is chosen by the kind of the copy: each kind that this version knows has its command, and no other kind is given that of
// another cloud.
func TestSyncCommandGoesByTheKindOfTheCopy(t *testing.T) {
	for _, kind := range party.UploadKinds() {
		if SyncCommandOf(kind, "prod-a") == nil {
			t.Errorf("no command uploads to %s", kind)
		}
	}
	if c := SyncCommandOf("vault", "prod-a"); c != nil {
		t.Errorf("%q uploads to a kind that nobody knows", c)
	}
	const copied, newer = "gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a/providers/prod-a", "vault-upload:auth/jwt"
	const other = "gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-b/providers/prod-b"
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
		both    string // where this keypost uploads to both kinds
	}{
		{[]string{"aws"}, "", ""},
		{[]string{newer}, "", "keypost vault sync-keys prod-a"},
		{[]string{newer, copied}, "keypost gcp sync-keys prod-a", "keypost vault sync-keys prod-a, and keypost gcp sync-keys prod-a"},
		{[]string{copied, other}, "keypost gcp sync-keys prod-a", "keypost gcp sync-keys prod-a"},
	} {
		set, err := keystore.New(keystore.Change{At: time.Now(), By: "me"}, keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{url},
			Keys: []keystore.VerificationKey{key}, Policy: keystore.Policy{RelyingParties: tt.parties}})
		if err != nil {
			t.Fatal(err)
		}
		f := &Factory{}
		if got := f.Lines(SyncCommands(set)); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.parties, got, tt.want)
		}
		both := func(kind string, n keystore.Name) Command { return Command{kind, "sync-keys", string(n)} }
		if got := f.format("%s", syncCommands(set, both)); got != tt.both {
			t.Errorf("%q, with two kinds that this keypost uploads to: %q, want %q", tt.parties, got, tt.both)
		}
	}
}
