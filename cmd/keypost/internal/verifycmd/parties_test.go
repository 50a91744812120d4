package verifycmd

import (
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
)

// The cluster is compared with the states that the stored keys have.
func TestWhatTheClusterIsComparedWith(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := keystore.Change{At: at}
	lifetime := keystore.Duration(time.Hour)
	active, retired, gone := storetest.Key(t), storetest.Key(t), storetest.Key(t)
	s, err := keystore.New(c, keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"),
		Keys: []keystore.VerificationKey{active, retired, gone}, Policy: keystore.Policy{TokenLifetime: &lifetime}})
	if err == nil {
		s, err = s.Retire(c, retired.ID(), keystore.Evidence{Statement: "seen"})
	}
	if err == nil {
		s, err = s.Revoke(keystore.Change{At: at, Why: "lost"}, gone.ID(), keystore.RevokeOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := wanted(target{set: &s}, verify.Examination{})
	if until, is := w.Retired(retired); !is || !until.Equal(at.Add(time.Hour+policy.ClockSkew)) {
		t.Errorf("the retired key: %v, %t", until, is)
	}
	for name, k := range map[string]keystore.VerificationKey{"active": active, "gone": gone} {
		if _, is := w.Retired(k); is {
			t.Errorf("the key that is %s counts as retired", name)
		}
	}
	if line, left := w.Gone(gone.ID()); !left || line.Why != keystore.Revoked || w.Idle(active) || !w.Idle(retired) {
		t.Errorf("gone: %+v, %t", line, left)
	}
}
