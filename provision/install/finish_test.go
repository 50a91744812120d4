package install

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/cluster"
)

// TestFinishGate: what the old trust waits for, to the second.
func TestFinishGate(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := Move{Old: "https://old.example.com"}
	for _, tt := range []struct {
		name     string
		lifetime time.Duration
		now      time.Time
		gate     keystore.Gate // "" is open
	}{
		{"nobody knows the lifetime", 0, since.Add(1000 * time.Hour), keystore.GateUndeclared},
		{"at once", time.Hour, since, keystore.GateTokens},
		{"a second too early", time.Hour, since.Add(time.Hour + 6*time.Minute - time.Second), keystore.GateTokens},
		{"the lifetime and six minutes later", time.Hour, since.Add(time.Hour + 6*time.Minute), ""},
		{"a clock a little behind", time.Hour, since.Add(-time.Minute), keystore.GateTokens},
		{"a clock that is wrong", time.Hour, since.Add(-time.Minute - time.Second), keystore.GateClock},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := m.tokensExpired(since, lifetime{tt.lifetime, "test"}, tt.now)
			gate, closed := errors.AsType[*keystore.NotYetError](err)
			switch {
			case tt.gate == "" && err != nil, tt.gate != "" && (!closed || gate.Gate != tt.gate):
				t.Errorf("tokensExpired = %v, want gate %q", err, tt.gate)
			case tt.gate == keystore.GateTokens && !gate.Opens.Equal(since.Add(time.Hour+6*time.Minute)):
				t.Errorf("opens at %v", gate.Opens)
			}
		})
	}
}

func TestStillSigning(t *testing.T) {
	signers := []cluster.Signer{{Address: "a:1", Issuer: "https://new"}, {Address: "b:1", Issuer: "https://old"}, {Address: "c:1", Issuer: "https://new/"}}
	got := strings.Join(stillSigning(signers, "https://new"), "\n")
	if want := "the kube-apiserver at b:1 still signs as https://old\nthe kube-apiserver at c:1 still signs as https://new/"; got != want {
		t.Errorf("stillSigning = %q, want %q", got, want)
	}
	if got := stillSigning(signers[:1], "https://new"); got != nil {
		t.Errorf("stillSigning = %q, want nothing", got)
	}
}
