// Package history has the lines that a key set keeps of its changes, and the chain of digests in them. A line is a note for
// people. The chain shows whether somebody has edited, dropped or reordered lines or content without making the chain anew,
// which whoever can write a document can do: it finds accidents and careless hands, and is no proof against the writer of a
// store.
//
// The lines of one generation are its group. The last line of a group has two digests: of the generation's content with all lines
// that the document had then, and of the generation before, which is that digest with that generation's group. So the digest of the
// last generation shows whether any line was dropped, changed or put in since, also lines from before digests; the chain shows it
// of earlier generations, through all lines that the document still has; and whoever has kept the digest of one generation can
// tell whether a later one descends from it.
package history

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Event is a line of history: a note for people, not evidence. It is comparable.
type Event struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"` // as the author has said: nothing checks it
	As     string    `json:"as,omitempty"` // whom the store took the author for (kubernetes:NAME, aws:ARN, git:NAME <MAIL>); empty if it did not say
	What   string    `json:"what"`
	Keys   string    `json:"keys,omitempty"` // which keys changed their states: see [Moves]
	Why    string    `json:"why,omitempty"`
	Forced bool      `json:"forced,omitempty"`

	Generation int64  `json:"generation,omitempty"` // that the change made; 0 in a line from before generations were recorded
	Content    Digest `json:"content,omitempty"`    // of that generation with the lines that it had, without this member; on the last line of a generation
	Previous   Digest `json:"previous,omitempty"`   // of the generation before; empty on that of the first
}

// Author returns who made the change, for people: whom the store took them for and what they say, or what they say and that
// nothing checked it; empty if neither was recorded.
func (e Event) Author() string {
	switch {
	case e.As != "" && e.By != "":
		return e.As + " (says " + e.By + ")"
	case e.As == "" && e.By != "":
		return e.By + " (self-declared)"
	}
	return e.As
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

// Digest is an unpadded base64url SHA-256.
type Digest string

// DigestOf returns sum as text.
func DigestOf(sum [sha256.Size]byte) Digest {
	return Digest(base64.RawURLEncoding.EncodeToString(sum[:]))
}

// State is what a chain of digests is made of, for one generation.
type State struct {
	Generation int64
	Content    Digest // of all but the history and the Unknown
	Lines      []Event
	Unknown    []string // members that this program does not know, as "unknown field "spec.x"": who does has digested them
}

// Digest returns the digest by which the next generation names s: of its content and its group, or of its content and all
// lines if it has no group. It counts the content as it is, whatever its line says.
func (s State) Digest() Digest {
	lines := Group(s.Lines, s.Generation)
	if len(lines) == 0 {
		lines = s.Lines
	}
	return digestOf(s.Generation, s.seal(), lines)
}

// seal returns the digest of the content, with all lines, that stands on the last of them.
func (s State) seal() Digest {
	lines := slices.Clone(s.Lines)
	if len(lines) > 0 {
		lines[len(lines)-1].Content = ""
	}
	return digestOf(s.Generation, s.Content, lines)
}

func digestOf(generation int64, content Digest, lines []Event) Digest {
	data, err := json.Marshal([]any{generation, content, lines})
	if err != nil {
		return "" // cannot happen: a line has only members that JSON can write, and documents only times that RFC 3339 can
	}
	return DigestOf(sha256.Sum256(data))
}

// Group returns the lines of a generation.
func Group(lines []Event, generation int64) []Event {
	return slices.Collect(func(yield func(Event) bool) {
		for _, e := range lines {
			if e.Generation == generation && generation != 0 && !yield(e) {
				return
			}
		}
	})
}

// Link returns the lines of now as they are stored: those that was lacks become the group of now's generation, with was named
// as the one before (the zero State: there is none). Lines of a group that has lost some to make room are left out.
func Link(was, now State) []Event {
	lines := slices.Clone(now.Lines)
	from := len(lines)
	for from > 0 && !Contains(was.Lines, lines[from-1]) {
		from--
		lines[from].Generation, lines[from].Content, lines[from].Previous = now.Generation, "", ""
	}
	now.Lines = lines[cut(was.Lines, lines[:from]):]
	if from < len(lines) {
		last := &lines[len(lines)-1]
		if was.Generation != 0 {
			last.Previous = was.Digest()
		}
		last.Content = now.seal()
	}
	return now.Lines
}

// cut returns how many of the first old lines are the rest of a group whose beginning was dropped.
func cut(was, old []Event) (n int) {
	if len(old) == 0 {
		return 0
	}
	group := old[0].Generation
	if group == 0 || len(Group(was, group)) == len(Group(old, group)) {
		return 0
	}
	for n < len(old) && old[n].Generation == group {
		n++
	}
	return n
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

// StateAt returns the state that a key had at t by the lines that have digests, empty if none of them tells.
func StateAt(lines []Event, id string, t time.Time) (state string) {
	for _, e := range lines {
		if e.Generation == 0 || e.At.After(t) {
			continue
		}
		for move := range strings.SplitSeq(e.Keys, "; ") {
			if to, is := strings.CutPrefix(move, id+": "); is { // no kid holds a space
				_, state, _ = strings.Cut(to, " → ")
			}
		}
	}
	return state
}
