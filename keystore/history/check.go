package history

import (
	"fmt"
	"slices"
	"strings"
)

// Finding is what is wrong with a chain of digests, at one generation. It says what was seen, not who did it: an edit by hand,
// a merge, a restored backup and a forger with little time look alike.
type Finding struct {
	Generation int64  `json:"generation"`
	Kind       Kind   `json:"kind"`
	Message    string `json:"message"`
}

// Kind is a kind of finding.
type Kind string

// The kinds of findings.
const (
	Broken Kind = "broken" // a digest is there and is another one
	Gap    Kind = "gap"    // what should be there is not
)

// Recorded reports whether lines have any digest. Those of a key set that was never changed since digests are recorded have not.
func Recorded(lines []Event) bool {
	return slices.ContainsFunc(lines, func(e Event) bool { return e.Generation != 0 })
}

// Check returns what is wrong with the chain in a document, as far back as its lines go: nothing if it is whole, or if nothing
// tells it from one of a program that recorded no digests. What a program has digested that knows more members is not checked.
func (s State) Check() []Finding {
	var found findings
	if s.Generation > 1 && slices.ContainsFunc(s.Lines, func(e Event) bool { return e.Generation == 0 && (e.Keys != "" || e.As != "") }) {
		found.note(s.Generation, Gap, "a line of history has no digests, and has what only programs write that record them: somebody has written it, or taken its digests away, by hand")
	}
	if !s.foreignLines() {
		found.links(groupsOf(s.Lines))
	}
	switch {
	case !Recorded(s.Lines):
	case s.last().Generation == 0: // noted above
	case s.last().Generation != s.Generation:
		found.note(s.Generation, Gap, "generation %d has no line of history: the last one is of generation %d", s.Generation, s.last().Generation)
	case s.last().Content != "" && len(s.Unknown) == 0 && s.last().Content != s.seal():
		found.note(s.Generation, Broken, "generation %d is not as it was written: its content was changed by hand, or lines of its history were changed, added or removed", s.Generation)
	}
	return found
}

// Lost returns a finding if s has no line of history at all, which no program leaves after the first generation. Check does not tell of
// it: keypostd would at each version of a document that people keep by hand.
func (s State) Lost() []Finding {
	var found findings
	if len(s.Lines) == 0 && s.Generation > 1 {
		found.note(s.Generation, Gap, "generation %d has no line of history: somebody has made it, or taken its history away, by hand", s.Generation)
	}
	return found
}

type findings []Finding

func (f *findings) note(generation int64, k Kind, format string, args ...any) {
	*f = append(*f, Finding{generation, k, fmt.Sprintf(format, args...)})
}

// links notes what is wrong between generations.
func (f *findings) links(groups []group) {
	for i, g := range groups {
		if g.generation == 0 {
			if i > 0 {
				f.note(groups[i-1].generation, Gap, "the lines after those of generation %d have no digests: an older program, or somebody by hand, has changed the key set", groups[i-1].generation)
			}
			continue
		}
		if g.last().Content == "" {
			f.note(g.generation, Gap, "the last line of generation %d has no digest of its content", g.generation)
		}
		if i == 0 || groups[i-1].generation == 0 {
			// What was before is not in the document any more, or was not recorded. It was named all the same.
			if g.generation > 1 && g.last().Previous == "" {
				f.note(g.generation, Gap, "the last line of generation %d does not name the generation before", g.generation)
			}
			continue
		}
		before := groups[i-1]
		switch {
		case g.last().Previous == before.digest():
		case g.generation > before.generation+1 && !g.accepts():
			f.note(g.generation, Gap, "between generation %d and %d lines are missing", before.generation, g.generation)
		default:
			f.note(g.generation, Broken, "generation %d was made from a generation other than the %d that is recorded here: a line was changed, added or removed, or %d was changed by hand", g.generation, before.generation, before.generation)
		}
	}
}

// last returns the last line; there is one.
func (s State) last() Event { return s.Lines[len(s.Lines)-1] }

// foreignLines reports whether lines have members that this program does not know, and so digests that it cannot make.
func (s State) foreignLines() bool {
	return slices.ContainsFunc(s.Unknown, func(u string) bool { return strings.Contains(u, "spec.history[") })
}

// group is the lines of one generation that stand one after the other.
type group struct {
	generation int64
	lines      []Event
}

func (g group) last() Event { return g.lines[len(g.lines)-1] }

func (g group) digest() Digest { return digestOf(g.generation, g.last().Content, g.lines) }

// accepts reports whether the generation settled a dispute, after which it may be any number.
func (g group) accepts() bool { return g.last().What == "accept" }

func groupsOf(lines []Event) (all []group) {
	for i, e := range lines {
		if i == 0 || lines[i-1].Generation != e.Generation {
			all = append(all, group{generation: e.Generation})
		}
		g := &all[len(all)-1]
		g.lines = append(g.lines, e)
	}
	return all
}

// Head is the end of a chain at one generation. A witness keeps it, to tell later whether another generation descends from that. The
// zero Head is of none.
type Head struct {
	Generation int64
	Digest     Digest
}

// Head returns that of s. With members that are not known it is what the last line says, the zero Head if that cannot be told.
func (s State) Head() Head {
	if len(s.Unknown) == 0 {
		return Head{s.Generation, s.Digest()}
	}
	g := group{s.Generation, Group(s.Lines, s.Generation)}
	if len(g.lines) == 0 || s.foreignLines() {
		return Head{}
	}
	return Head{s.Generation, g.digest()}
}

// Follow returns why s does not descend from the generation of a head, nil if it does, or if nothing shows it: s is from
// before digests were recorded, or its lines do not go back that far.
func (s State) Follow(was Head) *Finding {
	next := Group(s.Lines, was.Generation+1)
	switch {
	case was.Generation == 0 || !Recorded(s.Lines) || s.Head() == was:
		return nil
	case s.Generation <= was.Generation:
		return &Finding{s.Generation, Broken, fmt.Sprintf("generation %d comes after another generation %d", s.Generation, was.Generation)}
	case len(next) > 0 && next[len(next)-1].Previous == was.Digest:
		return nil
	case len(next) > 0 && group{lines: next}.accepts():
		return &Finding{was.Generation + 1, Broken, fmt.Sprintf("generation %d was accepted in place of the generation %d that was read here, and was made from another one", was.Generation+1, was.Generation)}
	case len(next) > 0:
		return &Finding{was.Generation + 1, Broken, fmt.Sprintf("generation %d was made from another generation %d than the one that was read here", was.Generation+1, was.Generation)}
	case slices.IndexFunc(s.Lines, func(e Event) bool { return e.Generation != 0 && e.Generation <= was.Generation }) < 0 && s.Lines[0].Generation != 0:
		return nil // its lines begin later: it may descend from it
	}
	return &Finding{s.Generation, Gap, fmt.Sprintf("no line of history has generation %d, which came after the one that was read here", was.Generation+1)}
}

// Shows reports whether the lines of s go back far enough that Follow can tell about a generation.
func (s State) Shows(was Head) bool {
	return s.Head() == was || len(Group(s.Lines, was.Generation+1)) > 0
}
