package install

import (
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func keySet(t *testing.T, at time.Time, dev bool, maxAge time.Duration) (keystore.KeySet, keystore.KeyID) {
	t.Helper()
	key := storetest.Key(t)
	spec := keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{key}, Dev: dev}
	spec.Policy.MaxAge = keystore.DurationPtr(maxAge)
	s, err := keystore.New(keystore.Change{At: at}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s, key.ID()
}

// Convergence of the servers (75 s), and of what answers "not found" for 60 s, from when the key was there.
func TestPropagated(t *testing.T) {
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
		if got := propagated(s, id, published.Add(tt.seen), tt.atOnce).Sub(published); got != tt.want {
			t.Errorf("%s: propagated after %v, want %v", tt.name, got, tt.want)
		}
	}
}
