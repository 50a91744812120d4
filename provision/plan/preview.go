package plan

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/keypost/keypost/internal/text"
)

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
