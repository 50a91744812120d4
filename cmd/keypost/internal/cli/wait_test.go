package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
)

func TestAwaited(t *testing.T) {
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day := Awaited{"prod-a: promote", t0, t0.Add(24 * time.Hour)}
	for _, tt := range []struct {
		a    Awaited
		at   time.Duration
		line string
		bar  string
	}{
		{day, 0, "prod-a: promote: 24h left, until 2026-03-02T12:00:00Z", "[--------------------]   0% "},
		{day, 6 * time.Hour, "prod-a: promote: 18h left, until 2026-03-02T12:00:00Z", "[#####---------------]  25% "},
		{day, 24*time.Hour - 90*time.Second, "prod-a: promote: 1m30s left, until 2026-03-02T12:00:00Z", "[###################-]  99% "},
		{day, 25 * time.Hour, "prod-a: promote: 0s left, until 2026-03-02T12:00:00Z", "[####################] 100% "},
		{day, -time.Hour, "prod-a: promote: 25h left, until 2026-03-02T12:00:00Z", "[--------------------]   0% "},
		{Awaited{"x", t0, t0}, 0, "x: 0s left, until 2026-03-01T12:00:00Z", "[####################] 100% "},
		{Awaited{"prod-a: retire", t0, time.Time{}}, 90 * time.Minute, "prod-a: retire: waiting for 1h30m", ""},
		{Awaited{"half", t0, t0.Add(time.Second / 2)}, 0, "half: 1s left, until 2026-03-01T12:00:01Z", "[--------------------]   0% "},
	} {
		if got := tt.a.line(t0.Add(tt.at)); got != tt.line {
			t.Errorf("after %v: %q, want %q", tt.at, got, tt.line)
		}
		if got := tt.a.bar(t0.Add(tt.at)); got != tt.bar+tt.line {
			t.Errorf("after %v: %q, want %q", tt.at, got, tt.bar+tt.line)
		}
	}
}

// No terminal is given a bar; it gets a line now and then.
func TestCountdownWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &Factory{Err: &out}
		c, began := f.NewCountdown(), time.Now()
		a := Awaited{"prod-a: promote", began, began.Add(time.Hour)}
		for range 121 {
			if err := c.Wait(t.Context(), 30*time.Second, a); err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 6 || !strings.HasPrefix(lines[0], "prod-a: promote: 50m left, until ") || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q", lines)
		}
	})
}

func TestCountdownOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began := time.Now()
		c := &Countdown{status: status{err: &out, width: func() int { return 60 }}}
		if err := c.Wait(t.Context(), 1500*time.Millisecond, Awaited{"prod-a: promote\x1b", began, began.Add(4 * time.Second)}); err != nil || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		drawn := strings.Split(out.String(), "\r\x1b[K")
		if len(drawn) != 4 || !strings.Contains(drawn[1], "  0% prod-a: promote?: 4s left") || !strings.Contains(drawn[2], " 25% ") || len(drawn[1]) != 59 || drawn[3] != "" {
			t.Errorf("%q", drawn)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(context.DeadlineExceeded)
		if err := c.Wait(ctx, time.Hour, Awaited{}); err != context.DeadlineExceeded { //nolint:errorlint // the cause itself
			t.Error(err)
		}
	})
}

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
