package answers

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// OfSTS is what the evidence of a refusal by AWS STS (aws-refused) begins with; what STS answered comes after it.
const OfSTS = "AWS STS answers "

// Explain says in the refusal among findings why AWS STS refused a token: for one of the failures that stand before it. Where none
// explains it, a warning that does has become a failure; and where no finding does, the refusal's repair says how to list what may.
// What is wrong with a token that the cluster makes right by now is repaired by a new one; all other findings stay as they are.
func Explain(findings []finding.Finding) {
	explainToken(findings)
	at := slices.IndexFunc(findings, func(f finding.Finding) bool { return f.Code == "aws-refused" })
	if at < 0 {
		return
	}
	refusal := &findings[at]
	answer := strings.TrimPrefix(refusal.Evidence, OfSTS)
	causes := Causes(answer)
	for _, s := range []finding.Severity{finding.Fail, finding.Warn} {
		for i, f := range findings {
			if i != at && f.Severity == s && slices.ContainsFunc(causes, func(c finding.Cause) bool { return c.Code == f.Code }) {
				findings[i].Severity = finding.Fail
				refusal.Repair = "repair " + f.Code + " first, which stands above, and try again"
				return
			}
		}
	}
	refusal.Repair = "nothing that was looked at explains it; this lists what may: " + text.Quoted("keypost", "verify", "--error", answer) + "; else " + refusal.Repair
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
