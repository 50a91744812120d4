package verify

import (
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// merge adds what was found at single addresses: once, with all the addresses that it was found at; none if that is all.
func merge(r *finding.Report, visits []*visit) {
	var all finding.Report
	for _, v := range visits {
		for _, f := range v.Findings {
			all.AddAt(f, v.look.Address)
		}
	}
	for _, f := range all.Findings {
		if len(f.At) == len(visits) {
			f.At = nil
		}
		r.Add(f)
	}
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string { return text.List(all, maxAddresses) }

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal or turning the
// direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
