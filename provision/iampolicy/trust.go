package iampolicy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// How many characters a trust policy may have: by default, and at most, once the account's quota L-C07B4B0D is raised
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const (
	TrustLength    = 2048
	MaxTrustLength = 8192
)

const assumeRole = "sts:AssumeRoleWithWebIdentity"

// Trust is an issuer whose tokens a statement of a trust policy lets in, through its IAM OIDC identity provider.
type Trust struct {
	ProviderARN string
	Issuer      string // URL
	Audiences   []string
}

// HostPath returns an issuer URL as IAM writes it: without https://, as before ":sub" and ":aud" in a condition.
func HostPath(issuer string) string { return strings.TrimPrefix(issuer, "https://") }

// statement returns our own statement: it lets these subjects in, with a token for one of the audiences. Without :aud, any
// token of the service account would do, also one that a pod has handed to another service. As ccoctl does, it has lists of claims.
func (t Trust) statement(subjects []string) statement {
	s, _ := parseStatement(asJSON(struct { // it parses what asJSON has just written
		Effect    string
		Principal map[string]string
		Action    string
		Condition map[string]map[string][]string
	}{"Allow", map[string]string{"Federated": t.ProviderARN}, assumeRole, map[string]map[string][]string{"StringEquals": {
		HostPath(t.Issuer) + ":aud": set(t.Audiences), HostPath(t.Issuer) + ":sub": set(subjects),
	}}}))
	return s
}

func set(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// Document returns a trust policy that lets only these subjects in, with a token for one of the audiences.
func (t Trust) Document(subjects []string) Document {
	return Document{version: version, statements: []statement{t.statement(subjects)}}
}

// isOurs reports whether a statement lets this provider's tokens in, and nobody else. A Deny, another action or a second
// principal is somebody's own work: replacing it could let in more than they meant.
func (s statement) isOurs(providerARN string) bool {
	return s.isPlain() && slices.Equal(s.Principal["Federated"], values{providerARN})
}

// isPlain reports whether a statement lets web identity tokens in and does nothing else.
func (s statement) isPlain() bool {
	return s.Effect == "Allow" && len(s.Principal) == 1 && len(s.Action) == 1 && strings.EqualFold(s.Action[0], assumeRole) &&
		s.NotPrincipal == nil && s.NotAction == nil && s.Resource == nil && s.NotResource == nil
}

// isOtherIssuer reports whether a statement does what ours does for other issuers of the same account: it lets in tokens
// of their providers (whose ARNs begin with providers), and of these only some subjects. Roles of a cluster that moves have
// such statements, and roles of several clusters.
func (s statement) isOtherIssuer(providers string) bool {
	elsewhere := func(arn string) bool { return !strings.HasPrefix(arn, providers) }
	if !s.isPlain() || len(s.Principal["Federated"]) == 0 || slices.ContainsFunc(s.Principal["Federated"], elsewhere) {
		return false
	}
	for _, operator := range []string{"StringEquals", "StringLike"} {
		for key, values := range s.Condition[operator] {
			if strings.HasSuffix(key, ":sub") && !slices.ContainsFunc(values, func(v string) bool { return strings.Trim(v, "*") == "" }) {
				return true
			}
		}
	}
	return false
}

// lets reports whether a statement lets tokens of a provider in.
func (s statement) lets(providerARN string) bool {
	return s.Effect == "Allow" && s.names(providerARN) && s.takes(assumeRole)
}

// where returns the statements that f picks.
func (d Document) where(f func(statement) bool) []statement {
	return slices.DeleteFunc(slices.Clone(d.statements), func(s statement) bool { return !f(s) })
}

// ours returns the statements that let a provider's tokens in, and nobody else.
func (d Document) ours(providerARN string) []statement {
	return d.where(func(s statement) bool { return s.isOurs(providerARN) })
}

// With returns d with our statement for these subjects, foreign statements as and where they are. The diff is empty if d
// means that already.
func (d Document) With(t Trust, subjects []string) (with Document, diff []string) {
	return d.put(t.statement(subjects), func(s statement) bool { return s.isOurs(t.ProviderARN) })
}

// Including returns d as [Document.With] does, and nothing goes: a statement of our form keeps its subjects and audiences. Where
// there are several, those for t's audiences become one. Every other statement stays as it is, beside ours; extra describes
// those for the same provider.
func (d Document) Including(t Trust, subjects []string) (with Document, diff, extra []string) {
	audience, subject := HostPath(t.Issuer)+":aud", HostPath(t.Issuer)+":sub"
	if one := d.where(t.wrote); len(one) == 1 {
		t.Audiences = slices.Concat(t.Audiences, one[0].Condition["StringEquals"][audience])
	}
	others := func(a string) bool { return !slices.Contains(t.Audiences, a) }
	merges := func(s statement) bool {
		return t.wrote(s) && !slices.ContainsFunc(s.Condition["StringEquals"][audience], others)
	}
	all := slices.Clone(subjects)
	for _, s := range d.ours(t.ProviderARN) {
		if merges(s) {
			all = append(all, s.Condition["StringEquals"][subject]...)
		} else {
			extra = append(extra, s.line())
		}
	}
	with, diff = d.put(t.statement(all), merges)
	return with, diff, extra
}

// wrote reports whether a statement has the form of ours, for whichever audiences and subjects.
func (t Trust) wrote(s statement) bool {
	asked := s.Condition["StringEquals"]
	t.Audiences = asked[HostPath(t.Issuer)+":aud"]
	return len(t.Audiences) > 0 && t.statement(asked[HostPath(t.Issuer)+":sub"]).line() == s.line()
}

// put returns d with want in the place of the first of the statements that replaces picks, and without the others of these.
func (d Document) put(want statement, replaces func(statement) bool) (with Document, diff []string) {
	old := d.where(replaces)
	if len(old) == 1 && old[0].line() == want.line() {
		return d, nil
	}
	gone, added := lines(old), []string{want.line()}
	if i := slices.Index(gone, want.line()); i >= 0 {
		gone, added = slices.Delete(gone, i, i+1), nil
	}
	if diff = diffLines(gone, added); len(diff) == 0 {
		diff = []string{"- a second statement for the provider, which means the same"}
	}
	at := slices.IndexFunc(d.statements, replaces)
	if at < 0 {
		at = len(d.statements)
	}
	with = d
	with.statements = slices.Insert(d.where(func(s statement) bool { return !replaces(s) }), at, want)
	return with, diff
}

// Without returns d with a provider taken out of the principals of every statement, and without the statements that have
// no other principal.
func (d Document) Without(providerARN string) (without Document, diff []string) {
	var rest, gone []statement
	for _, s := range d.statements {
		if !s.names(providerARN) {
			rest = append(rest, s)
			continue
		}
		if left, any := s.withoutPrincipal(providerARN); any {
			rest = append(rest, left)
		}
		s.Principal = principals{"Federated": {providerARN}}
		gone = append(gone, s)
	}
	d.statements = rest
	return d, diffLines(lines(gone), nil)
}

// withoutPrincipal returns s without one of its providers, and whether a principal is left.
func (s statement) withoutPrincipal(providerARN string) (statement, bool) {
	left := maps.Clone(s.Principal)
	left["Federated"] = slices.DeleteFunc(slices.Clone(left["Federated"]), func(v string) bool { return v == providerARN })
	maps.DeleteFunc(left, func(_ string, of values) bool { return len(of) == 0 })
	var members map[string]json.RawMessage
	_ = json.Unmarshal(s.raw, &members) // parseStatement has read it
	members["Principal"] = asJSON(left)
	s.raw, s.Principal = asJSON(members), left
	return s, len(left) > 0
}

// names reports whether a statement names a provider as a principal.
func (s statement) names(providerARN string) bool {
	return slices.Contains(s.Principal["Federated"], providerARN)
}

// Names reports whether a provider is a principal in any statement.
func (d Document) Names(providerARN string) bool {
	return slices.ContainsFunc(d.statements, func(s statement) bool { return s.names(providerARN) })
}

// Lets reports whether any statement lets tokens of a provider in.
func (d Document) Lets(providerARN string) bool {
	return slices.ContainsFunc(d.statements, func(s statement) bool { return s.lets(providerARN) })
}

// TrustsOnly reports whether d names a provider and, without that, lets nobody in.
func (d Document) TrustsOnly(providerARN string) bool {
	rest, _ := d.Without(providerARN)
	return d.Names(providerARN) && !slices.ContainsFunc(rest.statements, func(s statement) bool { return s.Effect == "Allow" })
}

// Others returns what a trust policy holds beside our statement for a provider: issuers are the principals of statements
// for other issuers of the account, whose provider ARNs begin with providers; extra describes every other statement.
func (d Document) Others(providerARN, providers string) (issuers, extra []string) {
	for _, s := range d.statements {
		switch {
		case s.isOurs(providerARN):
		case s.isOtherIssuer(providers):
			issuers = append(issuers, s.Principal["Federated"]...)
		default:
			extra = append(extra, s.line())
		}
	}
	slices.Sort(issuers)
	slices.Sort(extra)
	return slices.Compact(issuers), slices.Compact(extra)
}

// Subjects returns the subjects that our statements for an issuer let in, as they are written there: "*" stands for a
// statement that asks for none. They are sorted, once each.
func (d Document) Subjects(t Trust) []string {
	var out []string
	for _, s := range d.ours(t.ProviderARN) {
		asked := false
		for operator, keys := range s.Condition {
			for key, values := range keys {
				if !strings.Contains(operator, "Not") && strings.EqualFold(key, HostPath(t.Issuer)+":sub") {
					out, asked = append(out, values...), true
				}
			}
		}
		if !asked {
			out = append(out, "*")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Audiences returns the audiences that our statement for an issuer asks for; nil unless exactly one does.
func (d Document) Audiences(t Trust) []string {
	ours := d.ours(t.ProviderARN)
	if len(ours) != 1 {
		return nil
	}
	return ours[0].Condition["StringEquals"][HostPath(t.Issuer)+":aud"]
}

// Plus returns d with our statement for these subjects after all others, which stay as they are.
func (d Document) Plus(t Trust, subjects []string) Document {
	d.statements = append(slices.Clone(d.statements), t.statement(subjects))
	return d
}

// Providers returns the ARNs of the providers that d names as principals, sorted, once each.
func (d Document) Providers() []string {
	var out []string
	for _, s := range d.statements {
		out = append(out, s.Principal["Federated"]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
