package webidentity

import (
	"cmp"
	"slices"
	"strings"

	"github.com/keypost/keypost/issuer/verify/audience"
	"github.com/keypost/keypost/provision/iampolicy"
)

// subjectPrefix begins the sub of every service account's token.
const subjectPrefix = "system:serviceaccount:"

// checkTrust finds what keeps a token out of the role, in the statement of its trust policy that comes closest to letting it in,
// and the statements that let strangers in.
func (e *examination) checkTrust(d iampolicy.Document) {
	all := d.Judge(e.identity())
	e.checkDenials(d, all)
	e.checkAllowed(d, all)
	e.checkOpen(d)
}

// checkAllowed looks at the statement that comes closest to letting the token in.
func (e *examination) checkAllowed(d iampolicy.Document, all []iampolicy.Judgement) {
	var allowing []iampolicy.Judgement
	for _, j := range all {
		if !j.Deny {
			allowing = append(allowing, j)
		}
	}
	// A statement that may apply is no worse than one that does not, however close that comes.
	slices.SortStableFunc(allowing, func(a, b iampolicy.Judgement) int {
		return cmp.Or(cmp.Compare(b.Applies(), a.Applies()), distance(a)-distance(b))
	})
	if len(allowing) == 0 {
		if slices.ContainsFunc(all, func(j iampolicy.Judgement) bool { return j.Applies() == iampolicy.Yes }) {
			return // what denies it has been reported, and is the cause
		}
		e.FailWith("aws-trust-provider", e.admit(d), "the trust policy of %s allows nobody anything", e.Role)
		return
	}
	if allowing[0].Principal == iampolicy.No {
		e.FailWith("aws-trust-provider", e.admit(d), "the trust policy of %s names %s, not %s", e.Role, orNobody(d.Providers()), e.ProviderARN)
		return
	}
	switch closest := allowing[0]; closest.Applies() {
	case iampolicy.Yes:
		e.OK("aws-trust", "statement %d of the trust policy of %s lets the token in", closest.Number, e.Role)
	case iampolicy.Unknown:
		e.unclear(d, closest)
	default:
		e.keptOut(d, closest)
	}
}

// distance orders statements by how much of them keeps a token out.
func distance(j iampolicy.Judgement) int {
	n := 1000*int(iampolicy.Yes-j.Principal) + 100*int(iampolicy.Yes-j.Action)
	for _, t := range j.Tests {
		n += int(iampolicy.Yes - t.Holds)
	}
	return n
}

func orNobody(list []string) string {
	if len(list) == 0 {
		return "no provider"
	}
	return strings.Join(list, " and ")
}

func (e *examination) checkDenials(d iampolicy.Document, all []iampolicy.Judgement) {
	for _, j := range all {
		switch {
		case !j.Deny:
		case j.Applies() == iampolicy.Yes:
			e.FailWith("aws-trust-provider", "if that is not meant, take the statement out: "+e.edit(),
				"statement %d of the trust policy of %s denies it: %s", j.Number, e.Role, d.Line(j.Number))
		case j.Applies() == iampolicy.Unknown && e.Subject != "":
			e.WarnWith("aws-trust-unclear", tryIt+e.edit(), "statement %d of the trust policy of %s may deny it: %s", j.Number, e.Role, d.Line(j.Number))
		}
	}
}

// edit returns how a person changes a trust policy by hand.
func (e *examination) edit() string {
	return Command("get-role", "--role-name", e.Role, "--query", "Role.AssumeRolePolicyDocument") + " > trust.json, edit it, and " +
		Command("update-assume-role-policy", "--role-name", e.Role, "--policy-document", "file://trust.json")
}

// put returns the command that replaces the trust policy.
func (e *examination) put(d iampolicy.Document) string {
	text, err := d.Fit(iampolicy.TrustLength)
	if err != nil {
		return e.edit()
	}
	return Command("update-assume-role-policy", "--role-name", e.Role, "--policy-document", text)
}

func (e *examination) trust() iampolicy.Trust {
	t := iampolicy.Trust{ProviderARN: e.ProviderARN, Issuer: e.Issuer}
	if e.Audience != "" {
		t.Audiences = []string{e.audience()}
	}
	return t
}

// admit returns the command that lets the token in by a statement of its own, beside what is there.
func (e *examination) admit(d iampolicy.Document) string {
	if e.Subject == "" || e.Audience == "" {
		return e.edit()
	}
	return "if " + e.Subject + " is meant to have the role: " + e.put(d.Plus(e.trust(), []string{e.Subject}))
}

// keptOut names each condition of a statement that keeps the token out.
func (e *examination) keptOut(d iampolicy.Document, j iampolicy.Judgement) {
	if j.Action == iampolicy.No {
		e.FailWith("aws-trust-provider", e.admit(d), "statement %d of the trust policy of %s is not for sts:AssumeRoleWithWebIdentity: %s", j.Number, e.Role, d.Line(j.Number))
		return
	}
	for _, t := range j.Tests {
		if t.Holds != iampolicy.No {
			continue
		}
		condition := t.String()
		switch {
		case t.OtherIssuer:
			e.FailWith("aws-trust-provider", e.admit(d), "statement %d of the trust policy of %s compares a claim of another issuer than %s: %s", j.Number, e.Role, e.Issuer, condition)
		case t.Claim == "aud":
			e.FailWith("aws-trust-audience", e.otherAudience(d, t), "the token's audience is %q; statement %d of the trust policy of %s asks for %s", e.Audience, j.Number, e.Role, condition)
		case t.Claim == "sub" && t.Wildcard() && slices.ContainsFunc(t.Values, e.wouldMatch):
			e.FailWith("aws-trust-wildcard", e.admit(d), "statement %d of the trust policy of %s compares letter for letter with a pattern: %s", j.Number, e.Role, condition)
		case t.Claim == "sub":
			e.FailWith("aws-trust-subject", e.admit(d), "the token's sub is %q; statement %d of the trust policy of %s asks for %s", e.Subject, j.Number, e.Role, condition)
		default:
			e.FailWith("aws-trust-provider", e.admit(d), "statement %d of the trust policy of %s asks for a claim that AWS does not take from the token: %s", j.Number, e.Role, condition)
		}
	}
}

// otherAudience repairs a token with an audience that the role does not ask for; or the role, if the provider takes what the token has and
// not what the role asks for.
func (e *examination) otherAudience(d iampolicy.Document, t iampolicy.Test) string {
	if len(t.Values) != 1 || strings.Contains(t.Operator, "Not") || audience.MayBeClusters(t.Values[0], e.Issuer) {
		return e.admit(d)
	}
	if e.Audience == e.audience() && slices.Contains(e.ClientIDs, e.Audience) && !slices.Contains(e.ClientIDs, t.Values[0]) {
		return e.admit(d)
	}
	return e.askFor(t.Values[0])
}

// wouldMatch reports whether a value would let the token in if it were taken for a pattern.
func (e *examination) wouldMatch(value string) bool {
	return strings.ContainsAny(value, "*?") && iampolicy.Matches(value, e.Subject)
}

// tryIt begins the repair of what nobody but AWS can judge.
const tryIt = "see what AWS says (--token-file and --assume); if it refuses the token, "

// unclear says what is not known about a statement: a token's claims where there is no token, or what depends on more than it.
func (e *examination) unclear(d iampolicy.Document, j iampolicy.Judgement) {
	var conditions []string
	for _, t := range j.Tests {
		if t.Holds == iampolicy.Unknown && (t.Claim == "" || e.Subject != "") {
			conditions = append(conditions, t.String())
		}
	}
	if len(conditions) == 0 && j.Principal == iampolicy.Yes {
		e.OK("aws-trust", "statement %d of the trust policy of %s trusts the provider; a token says more (--token-file)", j.Number, e.Role)
		return
	}
	if len(conditions) == 0 { // whether the principal takes the provider in is not known
		conditions = []string{d.Line(j.Number)}
	}
	e.WarnWith("aws-trust-unclear", tryIt+e.admit(d), "statement %d of the trust policy of %s: %s", j.Number, e.Role, strings.Join(conditions, " and "))
}

// A stranger's token is one of a namespace, or for an audience, that no policy names.
const (
	strangerNamespace = "keypost-stranger"
	strangerAudience  = "https://keypost-stranger.invalid"
)

// checkOpen warns of each statement that lets strangers in, unless another one denies it. Whether a condition that is not about a claim keeps
// them out is not known: then it does.
func (e *examination) checkOpen(d iampolicy.Document) {
	elsewhere, another := e.identity(), e.identity()
	name := e.Subject[strings.LastIndex(e.Subject, ":")+1:]
	elsewhere.Subject, elsewhere.Audience = subjectPrefix+strangerNamespace+":"+cmp.Or(name, strangerNamespace), ""
	another.Subject, another.Audience = "", strangerAudience
	keepsOut := func(t iampolicy.Test) bool {
		return t.Holds == iampolicy.No || t.Holds == iampolicy.Unknown && t.Claim == ""
	}
	key, warned := iampolicy.HostPath(e.Issuer)+":", []int{}
	for _, gap := range []struct {
		stranger     iampolicy.Identity
		what, repair string
	}{
		{elsewhere, "lets service accounts of every namespace in", "name " + e.ProviderARN + " as the principal, and compare " + key + "sub with the service account"},
		{another, "takes a token for any audience", "compare " + key + "aud with the audience for AWS"},
	} {
		all := d.Judge(gap.stranger)
		if slices.ContainsFunc(all, func(j iampolicy.Judgement) bool { return j.Deny && j.Applies() == iampolicy.Yes }) {
			continue
		}
		for _, j := range all {
			if j.Deny || min(j.Principal, j.Action) == iampolicy.No || slices.Contains(warned, j.Number) || slices.ContainsFunc(j.Tests, keepsOut) {
				continue
			}
			warned = append(warned, j.Number) // for the first gap of a statement
			e.WarnWith("aws-trust-open", gap.repair+": "+e.edit(), "statement %d of the trust policy of %s %s: %s", j.Number, e.Role, gap.what, d.Line(j.Number))
		}
	}
}
