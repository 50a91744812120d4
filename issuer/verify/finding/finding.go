// Package finding has what a relying party of our own can find wrong: the table of causes, what clouds answer to each of
// them, and what repairs it. It is the only place that holds such answers, so that a pod's error leads back to its causes.
package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
)

// Severity sorts findings.
type Severity string

// The severities: Fail breaks relying parties or will, Warn works and is not right, OK is as it should be.
const (
	OK   Severity = "ok"
	Warn Severity = "warn"
	Fail Severity = "fail"
)

// Finding is what one check found, in parts that a caller can print, record or count. Every text in it is one line that
// is safe for a terminal, whatever a server sent.
type Finding struct {
	Code     string // of the cause, or of the check when all is well; in words joined by hyphens; scripts rely on it
	Check    string // the check; one may have several causes
	Severity Severity
	At       []string // the addresses that it was found at, as HOST:PORT; empty when it is about all of them
	Evidence string   // what was seen, as one sentence
	Answers  []Answer // what relying parties answer when it is so, in their own words
	Effect   string   // what else follows from it; may be empty
	Repair   string   // what to do about it; never empty when Severity is not OK
	Kid      string   // of the key that the repair is about, which the evidence may name among words of a server; empty if of none, or of several
}

// Message returns the evidence, and where it was found unless it says so itself.
func (f Finding) Message() string {
	if len(f.At) > 0 && !strings.Contains(f.Evidence, f.At[0]) {
		return "at " + text.List(f.At, mostAddresses) + ": " + f.Evidence
	}
	return f.Evidence
}

// Rogue reports whether a finding is about a stranger's key: one whose material is neither among the stored keys nor among
// those that are gone; or about a document that may lead to one: it cannot be read, since ours can be, or names a JWKS that
// is not ours.
func (f Finding) Rogue() bool {
	return slices.Contains([]string{"key-rogue", "keys-unread"}, f.Code)
}

// mostAddresses are named in a message.
const mostAddresses = 32

// Good returns the finding of a check that found nothing wrong.
func Good(check, evidence string) Finding {
	return Finding{Code: check, Check: check, Severity: OK, Evidence: clean(evidence)}
}

// Failed reports whether a finding fails.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail })
}

// Sort brings findings into the order in which they are to be read: failures first, then warnings, then what is well, and
// each of them as the table has their causes. The first failure is the cause to repair first.
func Sort(findings []Finding) {
	severities := []Severity{Fail, Warn, OK}
	place := func(f Finding) int {
		if f.Severity == OK { // its code is the check
			return slices.IndexFunc(table(), func(c Cause) bool { return c.Check == f.Check })
		}
		return byCode()[f.Code]
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(place(a), place(b)))
	})
}

// clean makes text of a stranger's server safe for a terminal.
func clean(s string) string { return text.OneLine(s, 0) }
