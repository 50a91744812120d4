package install

import (
	"errors"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
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
