package webidentity

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// ofSTS is what the evidence of a refusal by AWS STS (aws-refused) begins with; what STS answered comes after it.
const ofSTS = "AWS STS answers "

// Explain names in the refusal by AWS STS (aws-refused) the finding that explains it: one of a cause that has STS's answer, a failure
// before a warning. The warning has become a failure then.
func Explain(findings []finding.Finding) {
	at := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Code == "aws-refused" })
	if at < 0 {
		return
	}
	for _, s := range []finding.Severity{finding.Fail, finding.Warn} {
		for i, f := range findings {
			if i != at && f.Severity == s && answered(f, findings[at].Evidence) {
				findings[i].Severity = finding.Fail
				findings[at].Repair = "repair " + f.Code + " first, which stands above, and try again"
				return
			}
		}
	}
}

// answered reports whether AWS answers so where there is what f found.
func answered(f finding.Finding, evidence string) bool {
	return slices.ContainsFunc(f.Answers, func(a finding.Answer) bool { return a.Party == finding.AWS && strings.Contains(evidence, a.Text) })
}

// ThumbprintRefused reports whether a refusal by AWS STS says that no thumbprint of the provider fits.
func ThumbprintRefused(refusal finding.Finding) bool {
	return answered(finding.CauseOf("aws-thumbprint-stale").Finding(finding.Fail, "", ""), refusal.Evidence)
}
