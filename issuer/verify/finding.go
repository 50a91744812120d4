package verify

import (
	"cmp"
	"fmt"
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
	Check    string // the check, of which one may have several causes
	Severity Severity
	At       []string // the addresses that it was found at, as HOST:PORT; empty when it is about all of them
	Evidence string   // what was seen, as one sentence
	Answers  []Answer // what relying parties answer when it is so, in their own words
	Effect   string   // what else follows from it; may be empty
	Repair   string   // what to do about it; never empty when Severity is not OK
}

// Message returns the evidence, and where it was found unless it says so itself.
func (f Finding) Message() string {
	if len(f.At) > 0 && !strings.Contains(f.Evidence, f.At[0]) {
		return "at " + list(f.At) + ": " + f.Evidence
	}
	return f.Evidence
}

// Good returns the finding of a check that found nothing wrong.
func Good(check, evidence string) Finding {
	return Finding{Code: check, Check: check, Severity: OK, Evidence: clean(evidence)}
}

// Failed reports whether a finding fails.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fail })
}

// Sort brings findings into the order in which they are to be read: failures first, then warnings, then what is well, and
// each of them as the catalogue has their causes. The first failure is the cause to repair first.
func Sort(findings []Finding) {
	order := map[string]int{}
	for i, c := range Causes() {
		order[c.Code] = i
		if _, known := order["ok "+c.Check]; !known {
			order["ok "+c.Check] = i
		}
	}
	rank := func(f Finding) int {
		switch f.Severity {
		case Fail:
			return 0
		case Warn:
			return 1
		}
		return 2
	}
	place := func(f Finding) int {
		if f.Severity == OK {
			return order["ok "+f.Check]
		}
		return order[f.Code]
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(place(a), place(b)))
	})
}

// report collects findings.
type report struct {
	findings []Finding
}

func (r *report) add(f Finding) { r.findings = append(r.findings, f) }

func (r *report) ok(check, format string, args ...any) {
	r.add(Good(check, fmt.Sprintf(format, args...)))
}

func (r *report) warn(code, format string, args ...any) {
	r.add(CauseOf(code).Finding(Warn, fmt.Sprintf(format, args...), ""))
}

func (r *report) fail(code, format string, args ...any) {
	r.add(CauseOf(code).Finding(Fail, fmt.Sprintf(format, args...), ""))
}

// merge adds what was found at single addresses: once, with all the addresses that it was found at.
func (r *report) merge(visits []*visit) {
	first := len(r.findings)
	at := map[[4]string]int{}
	for _, v := range visits {
		for _, f := range v.findings {
			key := [...]string{f.Code, string(f.Severity), f.Evidence, f.Repair}
			i, known := at[key]
			if !known {
				i = len(r.findings)
				at[key] = i
				r.findings = append(r.findings, f)
			}
			if g := &r.findings[i]; !slices.Contains(g.At, v.look.Address) {
				g.At = append(g.At, v.look.Address)
			}
		}
	}
	for i := first; i < len(r.findings); i++ {
		if f := &r.findings[i]; len(f.At) == len(visits) {
			f.At = nil
		}
	}
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string {
	if extra := len(all) - maxAddresses; extra > 0 {
		return strings.Join(all[:maxAddresses], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return strings.Join(all, "")
}

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
