package history

import (
	"fmt"
	"strings"
	"testing"
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

func TestAuthor(t *testing.T) {
	for want, e := range map[string]Event{
		"":                      {},
		"alice (self-declared)": {By: "alice"},
	} {
		if got := e.Author(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
