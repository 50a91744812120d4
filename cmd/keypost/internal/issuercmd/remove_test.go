package issuercmd

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

func TestInUse(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	report := issuer.Report{Issuers: []issuer.Status{
		{Name: "a", Asked: map[string]time.Time{"https://a.example.com": now.Add(-25 * time.Hour), "https://old.example.com": now.Add(-time.Hour)}},
		{Name: "b", Asked: map[string]time.Time{"https://b.example.com": now.Add(-25 * time.Hour)}},
		{Name: "c"},
	}}
	if err := inUse(report, "a", now); err == nil || !strings.HasPrefix(err.Error(), "https://old.example.com was asked for at 2026-01-02T02:04:05Z") {
		t.Errorf("in use: %v", err)
	}
	for _, n := range []string{"b", "c", "d"} {
		if err := inUse(report, keystore.Name(n), now); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

func TestLastAsked(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, r := range map[string]listRow{
		"-":                              {},
		"not since 2026-01-02T03:04:05Z": {Served: &issuer.Status{Served: true}},
		"2026-01-02T04:04:05Z": {Served: &issuer.Status{Served: true, Asked: map[string]time.Time{
			"https://a.example.com": since, "https://b.example.com": since.Add(time.Hour)}}},
	} {
		if got := r.lastAsked(since); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
