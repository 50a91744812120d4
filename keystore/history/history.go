// Package history has the lines that a key set keeps of its changes: who changed what, when and why. A line is a note for
// people. Anyone who can write the key set can write other lines: what the store itself logs of its writers is the record.
package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Event is a line of history. It is comparable.
type Event struct {
	dropped
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"` // as the author has said: nothing checks it
	What   string    `json:"what"`
	Keys   string    `json:"keys,omitempty"` // which keys changed their states: see [Moves]
	Why    string    `json:"why,omitempty"`
	Forced bool      `json:"forced,omitempty"`
}

// dropped has the members by which versions before 0.1.0 linked a line to the one before, and named whom the store took the author
// for. They are read, since an unknown member would keep a document from being changed, and never written.
type dropped struct {
	As         ignored `json:"as,omitzero"`
	Generation ignored `json:"generation,omitzero"`
	Content    ignored `json:"content,omitzero"`
	Previous   ignored `json:"previous,omitzero"`
}

type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (ignored) UnmarshalJSON([]byte) error { return nil }

// Author returns who made the change, for people: what they say, and that nothing checked it; empty if that was not recorded.
func (e Event) Author() string {
	if e.By == "" {
		return ""
	}
	return e.By + " (self-declared)"
}

// Change returns what the change was about, for people: What, with the states of the one key that it names, or else each change
// of a key's state by itself.
func (e Event) Change() (what string, keys []string) {
	if e.Keys == "" {
		return e.What, nil
	}
	keys = strings.Split(e.Keys, "; ")
	kid, move, _ := strings.Cut(keys[0], ": ")
	if len(keys) == 1 && strings.HasSuffix(e.What, " "+kid) {
		return e.What + ": " + move, nil
	}
	return e.What, keys
}

// Contains reports whether e is one of the lines.
func Contains(lines []Event, e Event) bool {
	return slices.ContainsFunc(lines, func(o Event) bool {
		at := o.At.Equal(e.At)
		o.At = e.At
		return at && o == e
	})
}

// Append returns the lines with e behind them, at most the latest kept.
func Append(lines []Event, e Event, kept int) []Event {
	lines = append(lines, e)
	return lines[max(0, len(lines)-kept):]
}

// maxMoves bounds the text of Moves, in bytes: the store of key sets that takes the least takes that.
const maxMoves = 4000

// Moves returns which states changed from was to now, by key ID: "KID: next → active; KID: new → next".
func Moves(was, now map[string]string) string {
	var b strings.Builder
	left := 0
	for _, id := range slices.Sorted(maps.Keys(now)) {
		from, to := was[id], now[id]
		if from == to {
			continue
		}
		if from == "" {
			from = "new"
		}
		move := fmt.Sprintf("%s: %s → %s", id, from, to)
		if b.Len() > 0 {
			move = "; " + move
		}
		if left > 0 || b.Len()+len(move) > maxMoves {
			left++
			continue
		}
		b.WriteString(move)
	}
	if left > 0 {
		fmt.Fprintf(&b, "; and %d more", left)
	}
	return b.String()
}
