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
	claim        string // that would have to keep them out; empty for the principal
	what, repair string
	strangers    []iampolicy.Identity
}

// gaps are in order: a statement with several is named for the first.
func (e *examination) gaps(d iampolicy.Document) []gap {
	key, own := iampolicy.HostPath(e.Issuer)+":", iampolicy.Identity{ProviderARN: e.ProviderARN, Issuer: e.Issuer}
	audience := own
	audience.Audience = strangerURL
	everybody := iampolicy.Identity{ProviderARN: strangerProvider, Issuer: strangerURL, Subject: subjectPrefix + strangerName + ":" + strangerName}
	return []gap{
		{"", "lets everybody in", "name " + e.ProviderARN + " as the principal", []iampolicy.Identity{everybody}},
		{"sub", "lets service accounts of every namespace in", "compare " + key + "sub with the service account", strangersOf(d, own)},
		{"aud", "takes a token for any audience", "compare " + key + "aud with the audience for AWS", []iampolicy.Identity{audience}},
	}
}

// strangersOf returns service accounts of another namespace: one with another name too, and those with the names that the
// policy's patterns ask for, as anyone who has a namespace names the accounts there.
func strangersOf(d iampolicy.Document, own iampolicy.Identity) []iampolicy.Identity {
	names := []string{strangerName}
	for _, j := range d.Judge(own) {
		for _, t := range j.Tests {
			for _, v := range t.Values {
				if t.Claim == "sub" {
					names = append(names, strings.NewReplacer("*", "", "?", "x").Replace(v[strings.LastIndex(v, ":")+1:]))
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
			for _, n := range g.letIn(d.Judge(stranger)) {
				if slices.Contains(warned, n) {
					continue
				}
				warned = append(warned, n)
				e.WarnWith("aws-trust-open", g.repair+": "+e.edit(), "statement %d of the trust policy of %s %s: %s", n, e.Role, g.what, d.Line(n))
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
