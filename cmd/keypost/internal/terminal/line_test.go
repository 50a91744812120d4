package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func onScreen(out *bytes.Buffer, width int) *Line {
	return &Line{w: out, width: func() int { return width }, told: time.Now()}
}

// Elsewhere than on a screen: nothing for 15 seconds, then a line as often, with the total.
func TestProgressWithoutAScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLine(&out, func(string) string { return "" })
		p := l.Progress("reading the store", "key sets")
		p.Of(1000)
		time.Sleep(14 * time.Second)
		if out.Len() > 0 {
			t.Errorf("after 14 s: %q", out.String())
		}
		p.Done(312)
		time.Sleep(17 * time.Second)
		p.Now("waiting")
		time.Sleep(15 * time.Second)
		_, _ = fmt.Fprintln(l, "beside it")
		p.End()
		want := "reading the store: 312 of 1000 key sets, 15s\nreading the store: 312 of 1000 key sets, 30s\nreading the store: 312 of 1000 key sets, 45s: waiting\nbeside it\n"
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

func TestAwaited(t *testing.T) {
	t.Parallel()
	t0 := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	day := Awaited{"prod-a: promote", t0, t0.Add(24 * time.Hour)}
	for _, tt := range []struct {
		a    Awaited
		at   time.Duration
		line string
	}{
		{day, 0, "prod-a: promote: 24h left, until 2026-03-02T12:00:00Z"},
		{day, 6 * time.Hour, "prod-a: promote: 18h left, until 2026-03-02T12:00:00Z"},
		{day, 24*time.Hour - 90*time.Second, "prod-a: promote: 2m left, until 2026-03-02T12:00:00Z"},
		{day, 25 * time.Hour, "prod-a: promote: 0s left, until 2026-03-02T12:00:00Z"},
		{day, -time.Hour, "prod-a: promote: 25h left, until 2026-03-02T12:00:00Z"},
		{Awaited{"x", t0, t0}, 0, "x: 0s left, until 2026-03-01T12:00:00Z"},
		{Awaited{"prod-a: retire", t0, time.Time{}}, 90 * time.Minute, "prod-a: retire: waiting for 1h30m"},
	} {
		if got := tt.a.text(t0.Add(tt.at)); got != tt.line {
			t.Errorf("after %v: %q, want %q", tt.at, got, tt.line)
		}
	}
}

// A file gets a line now and then.
func TestCountdownWithoutAScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l, began := onScreen(&out, 0), time.Now()
		a := Awaited{"prod-a: promote", began, began.Add(time.Hour)}
		for range 121 {
			if err := l.Wait(t.Context(), 30*time.Second, a); err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 6 || !strings.HasPrefix(lines[0], "prod-a: promote: 50m left, until ") || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q", lines)
		}
	})
}
