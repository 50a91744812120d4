package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
)

func TestPauseFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Minute: time.Minute, time.Hour: LookEvery} {
			if got := PauseFor(&keystore.NotYetError{Opens: time.Now().Add(after)}, time.Second); got != want {
				t.Errorf("opens in %v: %v, want %v", after, got, want)
			}
		}
		if got := PauseFor(&keystore.NotYetError{}, time.Second); got != time.Second {
			t.Errorf("opens by an act: %v", got)
		}
	})
}

func TestNotBefore(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]time.Time{{}: {}, t0: t0, t0.Add(1): t0.Add(time.Second), t0.Add(time.Second - 1): t0.Add(time.Second), t0.In(time.FixedZone("x", 3600)): t0} {
		if got := NotBefore(at); !got.Equal(want) || !at.IsZero() && got.Location() != time.UTC {
			t.Errorf("%v: %v, want %v", at, got, want)
		}
	}
}
