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
}

func (r *report) add(f finding.Finding) { r.findings = append(r.findings, f) }

func (r *report) ok(check, format string, args ...any) {
	r.add(finding.Good(check, fmt.Sprintf(format, args...)))
}

func (r *report) warn(code, format string, args ...any) {
	r.add(finding.CauseOf(code).Finding(finding.Warn, fmt.Sprintf(format, args...), ""))
}

func (r *report) fail(code, format string, args ...any) {
	r.add(finding.CauseOf(code).Finding(finding.Fail, fmt.Sprintf(format, args...), ""))
}

// merge adds what was found at single addresses: once, with all the addresses that it was found at; none if that is all.
func (r *report) merge(visits []*visit) {
	var all gathered
	for _, v := range visits {
		for _, f := range v.findings {
			all.addAt(f, v.look.Address)
		}
	}
	for _, f := range all.findings {
		if len(f.At) == len(visits) {
			f.At = nil
		}
		r.add(f)
	}
}

// gathered is a report of what was found at several addresses.
type gathered struct {
	report
	places map[[4]string]int // of the findings, by what they say
}

// addAt adds what was found at an address, or the address to a finding that says the same.
func (g *gathered) addAt(f finding.Finding, address string) {
	says := [...]string{f.Code, string(f.Severity), f.Evidence, f.Repair}
	i, known := g.places[says]
	if !known {
		if g.places == nil {
			g.places = map[[4]string]int{}
		}
		i = len(g.findings)
		g.places[says] = i
		g.add(f)
	}
	if at := &g.findings[i].At; !slices.Contains(*at, address) {
		*at = append(*at, address)
	}
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string { return text.List(all, maxAddresses) }

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
