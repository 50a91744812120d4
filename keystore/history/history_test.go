package history

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMoves(t *testing.T) {
	was := map[string]string{"a": "next", "b": "active", "c": "retired"}
	now := map[string]string{"a": "active", "b": "active", "c": "removed", "d": "next"}
	if got, want := Moves(was, now), "a: next → active; c: retired → removed; d: new → next"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Moves(now, now); got != "" {
		t.Errorf("nothing has changed: %q", got)
	}
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprintf("%s%d", strings.Repeat("k", 1000), i)] = "active"
	}
	if got := Moves(nil, many); len(got) > maxMoves+100 || !strings.HasSuffix(got, "and 197 more") {
		t.Errorf("%d bytes, at the end %q", len(got), got[len(got)-20:])
	}
}

func TestStateAt(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	lines := []Event{
		{At: at(10), Keys: "a: new → next"},
		{At: at(20), Keys: "aa: new → next; a: next → active"},
		{At: at(30), What: "set policy"},
		{At: at(40), Keys: "a: active → retired"},
	}
	for n, want := range map[int]string{9: "", 10: "next", 20: "active", 39: "active", 40: "retired"} {
		if got := StateAt(lines, "a", at(n)); got != want {
			t.Errorf("at %d: %q, want %q", n, got, want)
		}
	}
}

func TestAuthor(t *testing.T) {
	for want, e := range map[string]Event{
		"":                        {},
		"alice (self-declared)":   {By: "alice"},
		"aws:arn (says alice)":    {By: "alice", As: "aws:arn"},
		"kubernetes:system:admin": {As: "kubernetes:system:admin"},
	} {
		if got := e.Author(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
