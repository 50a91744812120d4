package finding

import (
	"fmt"
	"slices"
)

// Report collects findings. The zero Report is empty. Repairs that are not given are those of the causes.
type Report struct {
	Findings []Finding

	places map[[4]string]int // of the findings that AddAt added, by what they say
}

// Add adds findings.
func (r *Report) Add(findings ...Finding) { r.Findings = append(r.Findings, findings...) }

// OK notes that a check found nothing wrong.
func (r *Report) OK(check, format string, args ...any) {
	r.Add(Good(check, fmt.Sprintf(format, args...)))
}

// Warn adds a warning of a cause.
func (r *Report) Warn(code, format string, args ...any) { r.WarnWith(code, "", format, args...) }

// Fail adds a failure of a cause.
func (r *Report) Fail(code, format string, args ...any) { r.FailWith(code, "", format, args...) }

// WarnWith is Warn with a repair.
func (r *Report) WarnWith(code, repair, format string, args ...any) {
	r.Add(CauseOf(code).Finding(Warn, fmt.Sprintf(format, args...), repair))
}

// FailWith is Fail with a repair.
func (r *Report) FailWith(code, repair, format string, args ...any) {
	r.Add(CauseOf(code).Finding(Fail, fmt.Sprintf(format, args...), repair))
}

// About says which key the repair of the last finding is about, by its kid.
func (r *Report) About(kid string) { r.Findings[len(r.Findings)-1].Kid = kid }

// AddAt adds what was found at an address, or the address to a finding that AddAt has added and that says the same.
func (r *Report) AddAt(f Finding, address string) {
	says := [...]string{f.Code, string(f.Severity), f.Evidence, f.Repair}
	i, known := r.places[says]
	if !known {
		if r.places == nil {
			r.places = map[[4]string]int{}
		}
		i = len(r.Findings)
		r.places[says] = i
		r.Add(f)
	}
	if at := &r.Findings[i].At; !slices.Contains(*at, address) {
		*at = append(*at, address)
	}
}

// Sorted brings the findings into the order of [Sort], leaves out what is said twice, and returns them.
func (r *Report) Sorted() []Finding {
	Sort(r.Findings)
	r.places = nil
	r.Findings = slices.CompactFunc(r.Findings, func(a, b Finding) bool {
		return a.Code == b.Code && a.Severity == b.Severity && a.Evidence == b.Evidence && slices.Equal(a.At, b.At)
	})
	return r.Findings
}
