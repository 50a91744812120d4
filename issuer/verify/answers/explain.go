package answers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// OfSTS is what the evidence of a refusal by AWS STS (aws-refused) begins with; what STS answered comes after it.
const OfSTS = "AWS STS answers "

// mostLikely is how many causes the repair of a refusal names.
const mostLikely = 3

// Explain says in the refusal among findings why AWS STS refused a token: for one of the failures that stand before it. Where none
// explains it, a warning that does has become a failure; and where no finding does, the refusal's repair names what was not
// looked at. Findings without a refusal stay as they are.
func Explain(findings []finding.Finding) {
	at := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Code == "aws-refused" })
	if at < 0 {
		return
	}
	refusal := &findings[at]
	answer := strings.TrimPrefix(refusal.Evidence, OfSTS)
	causes := slices.DeleteFunc(Causes(answer), func(c finding.Cause) bool { return c.Code == refusal.Code })
	for _, s := range []finding.Severity{finding.Fail, finding.Warn} {
		code := first(findings, causes, s)
		if code == "" {
			continue
		}
		for i := range findings {
			if findings[i].Code == code {
				findings[i].Severity = finding.Fail
			}
		}
		refusal.Repair = "repair " + code + " first, which stands above, and try again"
		return
	}
	causes = slices.DeleteFunc(causes, func(c finding.Cause) bool { return ruledOut(findings, c) })
	if len(causes) == 0 {
		return
	}
	var titles []string
	for _, c := range causes[:min(mostLikely, len(causes))] {
		titles = append(titles, c.Title+" ("+c.Code+")")
	}
	refusal.Repair = "nothing that was looked at explains it; what was not, and may: " + strings.Join(titles, "; ")
	if more := len(causes) - mostLikely; more > 0 {
		refusal.Repair += fmt.Sprintf("; and %d more, which this lists: %s", more, text.Quoted("keypost", "verify", "--error", answer))
	}
}

// first returns the code of the first of the causes that a finding has.
func first(findings []finding.Finding, causes []finding.Cause, s finding.Severity) string {
	for _, c := range causes {
		if slices.ContainsFunc(findings, func(f finding.Finding) bool { return f.Code == c.Code && f.Severity == s }) {
			return c.Code
		}
	}
	return ""
}

// ruledOut reports whether findings without one of the cause have looked for it: by a finding of its check, or, outside AWS, where
// rights may be lacking, of its area.
func ruledOut(findings []finding.Finding, c finding.Cause) bool {
	made := map[string]bool{}
	for _, f := range findings {
		made[f.Check] = true
	}
	if made[c.Check] {
		return true
	}
	for _, area := range finding.Areas() {
		same := func(o finding.Cause) bool { return o.Code == c.Code }
		if area.Title != "AWS" && slices.ContainsFunc(area.Causes, same) {
			return slices.ContainsFunc(area.Causes, func(o finding.Cause) bool { return made[o.Check] })
		}
	}
	return false
}
