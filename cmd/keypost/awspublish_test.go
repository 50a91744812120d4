package main

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

func keySet(t *testing.T, at time.Time, dev bool, maxAge time.Duration) (keystore.KeySet, keystore.KeyID) {
	t.Helper()
	keys, err := pubkey.Parse("ccoctl's", filesBelow(t, "testdata/ccoctl")["signer.public"])
	if err != nil {
		t.Fatal(err)
	}
	spec := keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: keys, Policy: newPolicy(), Dev: dev}
	spec.Policy.MaxAge = keystore.DurationPtr(maxAge)
	s, err := keystore.New(keystore.Change{At: at}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s, keys[0].ID()
}

// Convergence of the servers (75 s), and of what says "not found" for 60 s, from when the key was there.
func TestSettled(t *testing.T) {
	published := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		dev    bool
		maxAge time.Duration
		seen   time.Duration // after it was published
		atOnce bool
		want   time.Duration // after it was published
	}{
		{"served from the beginning", false, 5 * time.Minute, time.Second, true, 135 * time.Second},
		{"published an hour ago", false, 5 * time.Minute, time.Hour, true, 135 * time.Second},
		{"served only now", false, 5 * time.Minute, time.Hour, false, time.Hour + 135*time.Second},
		{"published by a clock that is ahead", false, 5 * time.Minute, -time.Hour, true, -time.Hour + 135*time.Second},
		{"long max-age: nothing was there to be kept", false, time.Hour, 0, true, 135 * time.Second},
		{"development", true, time.Second, 10 * time.Second, false, 11 * time.Second},
		{"development, like production", true, time.Hour, 0, true, 135 * time.Second},
	} {
		s, id := keySet(t, published, tt.dev, tt.maxAge)
		if got := settled(s, id, published.Add(tt.seen), tt.atOnce).Sub(published); got != tt.want {
			t.Errorf("%s: settled after %v, want %v", tt.name, got, tt.want)
		}
	}
}

// create-iam-roles asks for the same audiences as the create-all that made the provider, or the two undo each other.
func TestAudiences(t *testing.T) {
	usual := []string{"openshift", "sts.amazonaws.com"}
	for _, tt := range []struct{ registered, want string }{
		{"openshift sts.amazonaws.com", "openshift sts.amazonaws.com"},
		{"openshift sts.amazonaws.com vault", "openshift sts.amazonaws.com"},
		{"sts.amazonaws.com", "sts.amazonaws.com"},
		{"vault", "vault"},
	} {
		if got := strings.Join(audiences(usual, strings.Fields(tt.registered)), " "); got != tt.want {
			t.Errorf("audiences of %s: %s, want %s", tt.registered, got, tt.want)
		}
	}
}

// Where lines do not change, a wait is told of at its beginning and now and then; on a terminal, in one line.
func TestProgress(t *testing.T) {
	tell := func(tty bool) string {
		var b strings.Builder
		j := newJournal(&b)
		j.tty = tty
		start := time.Now()
		for s := range 40 {
			j.progress(start.Add(time.Duration(s)*time.Second), "waiting: %d s left", 40-s)
		}
		j.progress(start.Add(40*time.Second), "another wait")
		j.printf("done")
		return b.String()
	}
	if plain := tell(false); strings.Count(plain, "\n") != 5 || strings.Contains(plain, "\x1b") || !strings.Contains(plain, "25 s left") {
		t.Errorf("told in lines:\n%s", plain)
	}
	if line := tell(true); strings.Count(line, "\n") != 1 || strings.Count(line, "\r") != 42 || !strings.HasSuffix(line, "done\n") {
		t.Errorf("told on a terminal: %q", line)
	}
}
