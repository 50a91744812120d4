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
		{At: at(10), Generation: 1, Keys: "a: new → next"},
		{At: at(20), Generation: 2, Keys: "aa: new → next; a: next → active"},
		{At: at(30), Generation: 3, What: "set policy"},
		{At: at(35), Keys: "a: active → retired"}, // without digests: who has written it?
		{At: at(40), Generation: 4, Keys: "a: active → retired"},
	}
	for n, want := range map[int]string{9: "", 10: "next", 20: "active", 39: "active", 40: "retired"} {
		if got := StateAt(lines, "a", at(n)); got != want {
			t.Errorf("at %d: %q, want %q", n, got, want)
		}
	}
}

// What is dropped to make room leaves no rest of a generation, whose digest could not be checked.
func TestNoGenerationIsCutInTwo(t *testing.T) {
	var s State
	for g := range int64(30) {
		now := State{Generation: g + 1, Content: "c", Lines: s.Lines}
		for range 3 {
			now.Lines = Append(now.Lines, Event{What: "x", At: time.Unix(g, 0)}, 10)
		}
		now.Lines = Link(s, now)
		if found := now.Check(); len(found) > 0 || now.Follow(s.Head()) != nil {
			t.Fatalf("generation %d: %v", g+1, found)
		}
		if first := Group(now.Lines, now.Lines[0].Generation); len(first) != 3 {
			t.Fatalf("generation %d begins with %d lines of %d", g+1, len(first), first[0].Generation)
		}
		s = now
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

// Each generation but the first names the one before, also the first that a document still has: what was before may be gone from
// the lines, and its digest may not.
func TestTheFirstLineNamesWhatWasBefore(t *testing.T) {
	chain := func(generations ...int64) (s State) {
		for _, g := range generations {
			now := State{Generation: g, Content: "c", Lines: Append(s.Lines, Event{What: "x", At: time.Unix(g, 0)}, 2)}
			now.Lines = Link(s, now)
			s = now
		}
		return s
	}
	old := State{Generation: 4, Content: "c", Lines: []Event{{What: "before digests"}}}
	late := State{Generation: 5, Content: "c", Lines: append(old.Lines, Event{What: "x"})}
	late.Lines = Link(old, late)
	for name, s := range map[string]State{"the first": chain(1), "the first two": chain(1, 2), "trimmed": chain(1, 2, 3, 4), "after an old program": late} {
		if found := s.Check(); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	for name, s := range map[string]State{"trimmed": chain(1, 2, 3, 4), "one line": chain(7), "after an old program": late} {
		i := len(s.Lines) - 1
		if s.Generation == 4 {
			i = 0
		}
		s.Lines[i].Previous = ""
		for ; i < len(s.Lines); i++ { // by a hand that makes the rest anew
			if i > 0 && s.Lines[i-1].Content != "" {
				s.Lines[i].Previous = digestOf(s.Lines[i-1].Generation, s.Lines[i-1].Content, s.Lines[i-1:i])
			}
			s.Lines[i].Content = State{Generation: s.Lines[i].Generation, Content: "c", Lines: s.Lines[:i+1]}.seal()
		}
		if found := s.Check(); len(found) != 1 || found[0].Kind != Gap || !strings.Contains(found[0].Message, "does not name") {
			t.Errorf("%s without the digest of what was before: %v", name, found)
		}
	}
}
