// Package plan holds plans: ordered stages of actions that lead from what is there to what is wanted. It promises
// that making a Plan changes nothing, and that what a Plan shows ([Preview.Write]) is what [Plan.Apply] does. It knows
// no cloud.
package plan

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/keypost/keypost/internal/text"
)

// Verb is the kind of a change.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Change describes one change to one thing, not yet made.
type Change struct {
	Verb  Verb     `json:"verb"`
	Thing string   `json:"thing"`          // the kind of thing: "IAM OIDC identity provider", "IAM role"
	Name  string   `json:"name"`           // its ARN or name
	Diff  []string `json:"diff,omitempty"` // what differs, a line each: "+ …" is added, "- …" is removed
}

// String returns the change in words: "create IAM role NAME".
func (c Change) String() string { return fmt.Sprintf("%s %s %s", c.Verb, c.Thing, c.Name) }

// Action makes a Change.
type Action struct {
	Change

	// Lines is what Do returns if nothing has changed since the plan was made: one line per call that writes.
	Lines []string

	// Do makes the change and returns one line per call that took effect, also when it fails half-way. It may be called
	// again after a failure, whether or not the failed call took effect. It must not be nil.
	Do func(ctx context.Context) (lines []string, err error)
}

// Stage is a set of actions that may run concurrently.
type Stage []Action

// Plan leads from what is there to what is wanted, in stages one after another. A Plan without actions has nothing to do.
type Plan struct {
	Stages []Stage
	Notes  []string // information for the reader, whether or not anything changes: a line each

	// Warnings is what somebody else loses, or has again, when the plan is applied, a line each.
	Warnings []string

	// Extra is what is there beyond what is wanted, a line each. It counts as a difference, but Apply does not touch it.
	Extra []string
}

// Of returns a plan of these stages, without those that are empty.
func Of(notes []string, stages ...Stage) Plan {
	return Plan{Notes: notes, Stages: slices.DeleteFunc(stages, func(s Stage) bool { return len(s) == 0 })}
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool {
	return !slices.ContainsFunc(p.Stages, func(s Stage) bool { return len(s) > 0 })
}

// Len returns the number of actions.
func (p Plan) Len() int {
	n := 0
	for _, s := range p.Stages {
		n += len(s)
	}
	return n
}

// Creates returns how many things of a kind the plan makes.
func (p Plan) Creates(thing string) int {
	n := 0
	for _, a := range slices.Concat(p.Stages...) {
		if a.Verb == Create && a.Thing == thing {
			n++
		}
	}
	return n
}

// Then returns p followed by q.
func (p Plan) Then(q Plan) Plan {
	return Plan{
		Stages: slices.Concat(p.Stages, q.Stages), Notes: slices.Concat(p.Notes, q.Notes),
		Warnings: slices.Concat(p.Warnings, q.Warnings), Extra: slices.Concat(p.Extra, q.Extra),
	}
}

// Beside returns p and q with one stage: what they do may be done at the same time.
func (p Plan) Beside(q Plan) Plan {
	both := p.Then(q)
	both.Stages = Of(nil, slices.Concat(both.Stages...)).Stages
	return both
}

// Preview returns what Apply would do. A thing that is changed in several stages is shown once, where it is changed first.
func (p Plan) Preview() Preview {
	v := Preview{Notes: p.Notes, Warnings: p.Warnings, Extra: p.Extra}
	shown := map[string]int{}
	for _, s := range p.Stages {
		for _, a := range s {
			at, again := shown[a.String()]
			if again {
				v.Changes[at].Diff = slices.Concat(v.Changes[at].Diff, a.Diff)
				continue
			}
			shown[a.String()] = len(v.Changes)
			v.Changes = append(v.Changes, a.Change)
		}
	}
	return v
}

// Preview is a plan for the reader: changes that can be shown and not made. It may hold more than a [Plan] does, such as
// what is to be made on this machine first.
type Preview struct {
	Changes  []Change `json:"changes"`  // in the order in which they would be begun
	Notes    []string `json:"notes"`    // as in [Plan]
	Warnings []string `json:"warnings"` // as in [Plan]
	Extra    []string `json:"extra"`    // as in [Plan]
}

// After returns v preceded by changes.
func (v Preview) After(changes ...Change) Preview {
	v.Changes = slices.Concat(changes, v.Changes)
	return v
}

// Empty reports whether there is no difference between what is there and what is wanted.
func (v Preview) Empty() bool { return len(v.Changes)+len(v.Extra) == 0 }

// Write prints a line for each change, with its diff indented below it, then Extra, Warnings and Notes. Unprintable
// characters, which others may have written into an account to steer a terminal, are printed as question marks.
func (v Preview) Write(w io.Writer) error {
	var b bytes.Buffer
	if v.Empty() {
		b.WriteString("nothing to change\n")
	}
	for _, c := range v.Changes {
		fmt.Fprintf(&b, "%s %s\n", c.Verb.symbol(), text.SameWidth(c.String()))
		for _, line := range c.Diff {
			fmt.Fprintf(&b, "    %s\n", text.SameWidth(line))
		}
	}
	for _, extra := range v.Extra {
		fmt.Fprintf(&b, "? %s\n", text.SameWidth(extra))
	}
	for _, warning := range v.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", text.SameWidth(warning))
	}
	for _, note := range v.Notes {
		fmt.Fprintf(&b, "note: %s\n", text.SameWidth(note))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// symbol is the first character of a change's line, for the eye and for grep.
func (v Verb) symbol() string {
	switch v {
	case Create:
		return "+"
	case Delete:
		return "-"
	default:
		return "~"
	}
}
