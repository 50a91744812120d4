package webidentity

import (
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/iampolicy"
)

// A role is open if a stranger's token passes: one of a namespace or for an audience that no policy names, or of another issuer.
const (
	strangerName     = "keypost-stranger"
	strangerURL      = "https://keypost-stranger.invalid"
	strangerProvider = "arn:aws:iam::000000000000:oidc-provider/keypost-stranger.invalid"
)

// gap is a way in for strangers.
type gap struct {
	code, claim  string // claim is the one that would have to keep them out; empty for the principal
	what, repair string
	strangers    []iampolicy.Identity
}

// gaps are in order: a statement with several is named for the first.
func (e *examination) gaps(d iampolicy.Document) []gap {
	key, own := iampolicy.HostPath(e.Issuer)+":", iampolicy.Identity{ProviderARN: e.ProviderARN, Issuer: e.Issuer}
	audience, noSubject, noAudience := own, own, own
	audience.Audience, noSubject.Without, noAudience.Without = strangerURL, "sub", "aud"
	everybody := iampolicy.Identity{ProviderARN: strangerProvider, Issuer: strangerURL, Subject: subjectPrefix + strangerName + ":" + strangerName}
	return []gap{
		{"aws-trust-open", "", "lets everybody in", "name " + e.ProviderARN + " as the principal", []iampolicy.Identity{everybody}},
		{"aws-trust-open", "sub", "lets service accounts of every namespace in", "compare " + key + "sub with the service account", strangersOf(d, own)},
		{"aws-trust-open", "aud", "takes a token for any audience", "compare " + key + "aud with the audience for AWS", []iampolicy.Identity{audience}},
		{"aws-trust-open", "sub", "asks nothing of a token without sub", "compare " + key + "sub by StringEquals or StringLike", []iampolicy.Identity{noSubject}},
		{"aws-trust-open", "aud", "asks nothing of a token without aud", "compare " + key + "aud by StringEquals or StringLike", []iampolicy.Identity{noAudience}},
	}
}

// strangersOf returns service accounts of another namespace: one with another name too, and those with the names that the
// policy's patterns ask for, as whoever has a namespace names the accounts there.
func strangersOf(d iampolicy.Document, own iampolicy.Identity) []iampolicy.Identity {
	names := []string{strangerName}
	for _, j := range d.Judge(own) {
		for _, t := range j.Tests {
			for _, v := range t.Values {
				name := strings.NewReplacer("*", "", "?", "x").Replace(v[strings.LastIndex(v, ":")+1:])
				if t.Claim == "sub" && iampolicy.Matches(v, subjectPrefix+strangerName+":"+name) {
					names = append(names, name)
				}
			}
		}
	}
	var all []iampolicy.Identity
	for _, name := range names {
		stranger := own
		stranger.Subject = subjectPrefix + strangerName + ":" + name
		all = append(all, stranger)
	}
	return all
}

// checkOpen warns of each statement that lets strangers in.
func (e *examination) checkOpen(d iampolicy.Document) {
	var warned []int
	for _, g := range e.gaps(d) {
		for _, stranger := range g.strangers {
			for _, n := range g.letIn(judge(d, stranger)) {
				if slices.Contains(warned, n) {
					continue
				}
				warned = append(warned, n)
				e.WarnWith(g.code, g.repair+": "+e.edit(), "statement %d of the trust policy of %s %s: %s", n, e.Role, g.what, d.Line(n))
			}
		}
	}
}

// letIn returns the numbers of the statements that let a stranger in, none if one denies it.
func (g gap) letIn(all []iampolicy.Judgement) []int {
	var in []int
	for _, j := range all {
		about := j.Action == iampolicy.Yes && (j.Principal == iampolicy.Yes || j.Principal == iampolicy.Unknown && !j.Deny)
		switch fails := func(t iampolicy.Test) bool {
			return t.Holds == iampolicy.No || t.Holds == iampolicy.Unknown && g.restricts(t) != j.Deny
		}; {
		case !about, slices.ContainsFunc(j.Tests, fails):
		case j.Deny:
			return nil
		default:
			in = append(in, j.Number)
		}
	}
	return in
}

// restricts reports whether a condition whose outcome is not known counts as one that keeps strangers out: that on the claim
// does, and that on the caller's own AWS account. The caller's address, say, does not: strangers may have the same.
func (g gap) restricts(t iampolicy.Test) bool {
	return t.Claim != "" && t.Claim == g.claim || strings.HasPrefix(strings.ToLower(t.Key), "aws:principal")
}
