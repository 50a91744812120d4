package verify

import (
	"fmt"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// report collects findings.
type report struct {
	findings []finding.Finding
	causes   map[string]finding.Cause // of them, by code: a look-up makes the whole catalogue
}

// cause returns the cause with a code.
func (r *report) cause(code string) finding.Cause {
	c, known := r.causes[code]
	if !known {
		if r.causes == nil {
			r.causes = map[string]finding.Cause{}
		}
		c = finding.CauseOf(code)
		r.causes[code] = c
	}
	return c
}

func (r *report) add(f finding.Finding) { r.findings = append(r.findings, f) }

func (r *report) ok(check, format string, args ...any) {
	r.add(finding.Good(check, fmt.Sprintf(format, args...)))
}

func (r *report) warn(code, format string, args ...any) {
	r.add(r.cause(code).Finding(finding.Warn, fmt.Sprintf(format, args...), ""))
}

func (r *report) fail(code, format string, args ...any) {
	r.add(r.cause(code).Finding(finding.Fail, fmt.Sprintf(format, args...), ""))
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
func list(all []string) string { return text.List(all, maxAddresses) }

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
