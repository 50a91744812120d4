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
// looked at. What is wrong with a token that the cluster makes right by now is repaired by a new one; all other findings stay as they
// are.
func Explain(findings []finding.Finding) {
	explainToken(findings)
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

// explainToken says what is to be done about a token whose issuer or key is wrong where the cluster has been looked at. If that is as it
// should be, the token is from before; if it is not, that is the cause, and the flags are printed there.
func explainToken(findings []finding.Finding) {
	state := map[string]finding.Finding{} // the worst finding of a check
	for _, f := range findings {
		if has, seen := state[f.Check]; !seen || has.Severity == finding.OK {
			state[f.Check] = f
		}
	}
	for i := range findings {
		f := &findings[i]
		by, what := "", ""
		switch f.Code {
		case "token-issuer-other":
			by, what = "cluster-issuer", "signs as the issuer URL now"
		case "token-kid-gone", "token-kid-unknown", "token-signature-wrong":
			by, what = "cluster-key", "signs with a published key now"
		}
		switch c, seen := state[by]; {
		case !seen || f.Severity == finding.OK:
		case c.Severity == finding.OK:
			f.Repair = "make a new token, since the cluster " + what + ", and this one is from before (a pod gets one when it is made anew): " + finding.MakeToken
		case by == "cluster-issuer" || c.Code == "cluster-key-gone": // of another key the token's own repair says what to do
			f.Repair = "repair " + c.Code + " first, which stands above, and make a new token: " + finding.MakeToken
		}
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
	return c.Area() != "AWS" && slices.ContainsFunc(finding.Causes(), func(o finding.Cause) bool { return o.Area() == c.Area() && made[o.Check] })
}
