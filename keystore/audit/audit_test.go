package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/audit"
	"github.com/keypost/keypost/keystore/storetest"
)

// Which keys were trusted when, through the life of two keys.
func TestTrustedKeys(t *testing.T) {
	a, b := storetest.Key(t), storetest.Key(t)
	must := func(s keystore.KeySet, err error) keystore.KeySet {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hour := func(n int) keystore.Change { return storetest.Change(time.Duration(n) * time.Hour) }
	s := storetest.KeySet(t, "prod-a", a)
	s = must(s.Add(hour(10), b))
	s = must(s.Promote(hour(20), b.ID(), keystore.Observed{}))
	s = must(s.Retire(hour(30), a.ID(), keystore.Evidence{Statement: "x"}))
	s = must(s.Promote(hour(40), a.ID(), keystore.Observed{})) // a rollback, which overwrites dates
	s = must(s.Retire(hour(50), a.ID(), keystore.Evidence{Statement: "x"}))
	s = must(s.Remove(hour(60), a.ID(), keystore.Removal{}))
	withdrawn := must(s.Withdraw(hour(200)))
	for _, tt := range []struct {
		set  keystore.KeySet
		hour float64
		want string
	}{
		{s, -1, ""},
		{s, 0, "a:listed"},
		{s, 9.5, "a:listed"},
		{s, 10, "a:listed b:listed"},
		{s, 45, "a:listed b:listed"},
		{s, 59.9, "a:listed b:listed"},
		{s, 60, "a:left b:listed"},
		{s, 150, "b:listed"},
		{withdrawn, 199, "b:listed"},
		{withdrawn, 200, "b:left"},
		{withdrawn, 400, ""},
	} {
		r := audit.Of(tt.set, storetest.Time(time.Duration(tt.hour*float64(time.Hour))))
		var got []string
		for _, v := range []keystore.VerificationKey{a, b} {
			for _, k := range r.Keys {
				if k.Kid != v.ID() {
					continue
				}
				state := "listed"
				if !k.Listed {
					state = "left"
				}
				if k.Fingerprint != v.Fingerprint() || k.Listed && k.LeftAt.IsZero() && k.PublicKey == "" {
					t.Errorf("%v: %+v", tt.hour, k)
				}
				got = append(got, map[keystore.KeyID]string{a.ID(): "a", b.ID(): "b"}[k.Kid]+":"+state)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("at hour %v: %q, want %q", tt.hour, got, tt.want)
		}
	}
}
