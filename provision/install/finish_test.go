package install

import (
	"errors"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/storetest"
)

// TestFinishGate: what the old trust waits for, to the second.
func TestFinishGate(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := Move{Old: "https://old.example.com"}
	for _, tt := range []struct {
		name     string
		lifetime time.Duration
		now      time.Time
		gate     gate.Gate // "" is open
	}{
		{"nobody knows the lifetime", 0, since.Add(1000 * time.Hour), gate.GateUndeclared},
		{"at once", time.Hour, since, gate.GateTokens},
		{"a second too early", time.Hour, since.Add(time.Hour + 6*time.Minute - time.Second), gate.GateTokens},
		{"the lifetime and six minutes later", time.Hour, since.Add(time.Hour + 6*time.Minute), ""},
		{"a clock a little behind", time.Hour, since.Add(-time.Minute), gate.GateTokens},
		{"a clock that is wrong", time.Hour, since.Add(-time.Minute - time.Second), gate.GateClock},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := m.tokensExpired(since, lifetime{tt.lifetime, "test"}, tt.now)
			refused, closed := errors.AsType[*keystore.NotYetError](err)
			switch {
			case tt.gate == "" && err != nil, tt.gate != "" && (!closed || refused.Gate != tt.gate):
				t.Errorf("tokensExpired = %v, want gate %q", err, tt.gate)
			case tt.gate == gate.GateTokens && !refused.Opens.Equal(since.Add(time.Hour+6*time.Minute)):
				t.Errorf("opens at %v", refused.Opens)
			}
		})
	}
}

var published = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func keySet(t *testing.T, dev bool, p keystore.Policy) (keystore.KeySet, keystore.VerificationKey) {
	t.Helper()
	key := storetest.Key(t)
	spec := keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{key}, Dev: dev, Policy: p}
	s, err := keystore.New(keystore.Change{At: published}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s, key
}

const usual = 135 * time.Second // convergence of the servers (75 s), and what answers "not found" for 60 s

// The wait counts from when the key was seen: how long it lay in the store says nothing, since what serves the store may have been slow.
func TestTheWaitBeginsWhereTheKeyIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		dev    bool
		maxAge time.Duration
		seen   time.Duration // after it was published
		later  bool          // an earlier look found nothing
		want   time.Duration // after it was seen
	}{
		{"served from the beginning", false, 5 * time.Minute, time.Second, false, usual},
		{"published a year ago", false, 5 * time.Minute, 365 * 24 * time.Hour, false, usual},
		{"served only now", false, 5 * time.Minute, time.Hour, true, usual},
		{"published by a clock that is ahead", false, 5 * time.Minute, -time.Hour, false, usual},
		{"short max-age: an answer 404 has its own", false, time.Minute, 0, false, usual},
		{"long max-age: nothing was there to be kept", false, time.Hour, 0, false, usual},
		{"development", true, time.Second, 10 * time.Second, true, time.Second},
		{"development, with a long max-age", true, time.Hour, 0, false, time.Second},
	} {
		s, key := keySet(t, tt.dev, keystore.Policy{MaxAge: keystore.DurationPtr(tt.maxAge)})
		a := &Publication{Stored: s, Keys: []keystore.VerificationKey{key}}
		if got := a.propagated(published.Add(tt.seen), !tt.later).Sub(published); got != tt.seen+tt.want {
			t.Errorf("%s: until %v after it was published, want %v", tt.name, got, tt.seen+tt.want)
		}
	}
}

// A run that makes nothing does not wait again, unless a look of the run did not find the key: then it is
// gone through once more. The cluster's next key is waited for in any case.
func TestTrustedAlready(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{})
	seen := published.Add(time.Hour)
	a := &Publication{Stored: s, Keys: []keystore.VerificationKey{key}, Settled: true}
	if until := a.propagated(seen, true); until.After(seen) {
		t.Errorf("the second run waits until %v", until)
	}
	if until := a.propagated(seen, false); until != seen.Add(usual) {
		t.Errorf("after an answer without the key: %v", until)
	}
	next := storetest.SyntheticRSA(t, 7)
	s, err := s.Add(keystore.Change{At: published.Add(time.Second)}, next)
	if err != nil {
		t.Fatal(err)
	}
	a = &Publication{Stored: s, Keys: []keystore.VerificationKey{next}, Settled: true}
	if until := a.propagated(seen, true); until != seen.Add(usual) {
		t.Errorf("with a next key: %v", until)
	}
}
