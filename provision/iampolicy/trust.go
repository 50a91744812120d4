package iampolicy

import (
	"encoding/json"
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
// token of the service account would do, also one that a pod has handed to another service.
func (t Trust) statement(subjects []string) statement {
	type conditions map[string][]string
	raw := asJSON(struct {
		Effect    string
		Principal map[string]string
		Action    string
		Condition map[string]conditions
	}{
		Effect:    "Allow",
		Principal: map[string]string{"Federated": t.ProviderARN},
		Action:    assumeRole,
		Condition: map[string]conditions{"StringEquals": {
			HostPath(t.Issuer) + ":aud": slices.Compact(slices.Sorted(slices.Values(t.Audiences))),
			HostPath(t.Issuer) + ":sub": slices.Compact(slices.Sorted(slices.Values(subjects))),
		}},
	})
	s, _ := parseStatement(raw) // it parses what asJSON has just written
	return s
}

// Document returns a trust policy that lets only these subjects in, with a token for one of the audiences.
func (t Trust) Document(subjects []string) Document {
	return Document{version: version, statements: []statement{t.statement(subjects)}}
}

// isOurs reports whether a statement lets this provider's tokens in, and nobody else. A Deny, another action or a second
// principal is somebody's own work: replacing it could let in more than they meant.
func (s statement) isOurs(providerARN string) bool {
	return s.isPlain() && len(s.Principal) == 1 && slices.Equal(s.Principal["Federated"], []string{providerARN})
}

// isPlain reports whether a statement lets web identity tokens in and does nothing else.
func (s statement) isPlain() bool {
	actions := s.Elements["Action"]
	return s.Effect == "Allow" && len(s.Elements) == 1 && len(actions) == 1 && strings.EqualFold(actions[0], assumeRole)
}

// isOtherIssuer reports whether a statement does what ours does for other issuers of the same account: it lets in tokens
// of their providers (whose ARNs begin with providers), and of these only some subjects. Roles of a cluster that moves have
// such statements, and roles of several clusters.
func (s statement) isOtherIssuer(providers string) bool {
	if !s.isPlain() || len(s.Principal) != 1 || len(s.Principal["Federated"]) == 0 {
		return false
	}
	for _, arn := range s.Principal["Federated"] {
		if !strings.HasPrefix(arn, providers) {
			return false
		}
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

// split is a trust policy seen from one provider.
type split struct {
	ours, foreign []statement
	at            int // how many foreign ones precede our first
}

func (d Document) split(providerARN string) split {
	return d.splitBy(func(s statement) bool { return s.isOurs(providerARN) })
}

func (d Document) splitBy(ours func(statement) bool) split {
	sp := split{at: -1}
	for _, s := range d.statements {
		if !ours(s) {
			sp.foreign = append(sp.foreign, s)
			continue
		}
		if sp.at < 0 {
			sp.at = len(sp.foreign)
		}
		sp.ours = append(sp.ours, s)
	}
	if sp.at < 0 {
		sp.at = len(sp.foreign)
	}
	return sp
}

// With returns d with our statement for these subjects, foreign statements as and where they are. The diff is empty if d
// means that already.
func (d Document) With(t Trust, subjects []string) (with Document, diff []string) {
	return d.put(d.split(t.ProviderARN), t, subjects)
}

// Including returns d as [Document.With] does, and nothing goes: a statement of our form keeps its subjects and audiences. Where
// there are several, those for t's audiences become one. Every other statement stays as it is, beside ours; extra describes
// those for the same provider.
func (d Document) Including(t Trust, subjects []string) (with Document, diff, extra []string) {
	if one := d.splitBy(t.wrote).ours; len(one) == 1 {
		t.Audiences = slices.Concat(t.Audiences, one[0].Condition["StringEquals"][HostPath(t.Issuer)+":aud"])
	}
	sp := d.splitBy(func(s statement) bool { return t.wrote(s) && t.takes(s) })
	all := slices.Clone(subjects)
	for _, s := range sp.ours {
		all = append(all, s.Condition["StringEquals"][HostPath(t.Issuer)+":sub"]...)
	}
	for _, s := range sp.foreign {
		if s.isOurs(t.ProviderARN) {
			extra = append(extra, s.trustLine())
		}
	}
	with, diff = d.put(sp, t, all)
	return with, diff, extra
}

// wrote reports whether a statement has the form of ours, for whichever audiences and subjects.
func (t Trust) wrote(s statement) bool {
	asked := s.Condition["StringEquals"]
	t.Audiences = asked[HostPath(t.Issuer)+":aud"]
	return len(t.Audiences) > 0 && t.statement(asked[HostPath(t.Issuer)+":sub"]).key() == s.key()
}

// takes reports whether all audiences of a statement of our form are t's.
func (t Trust) takes(s statement) bool {
	asked := s.Condition["StringEquals"][HostPath(t.Issuer)+":aud"]
	return !slices.ContainsFunc(asked, func(a string) bool { return !slices.Contains(t.Audiences, a) })
}

// Beyond returns the statements, as JSON, that d has after those of old.
func (d Document) Beyond(old Document) []string {
	var out []string
	for _, s := range d.statements[len(old.statements):] {
		out = append(out, string(s.raw))
	}
	return out
}

// put returns d with our statement in the place of those that the split says are ours.
func (d Document) put(sp split, t Trust, subjects []string) (with Document, diff []string) {
	want := t.statement(subjects)
	if len(sp.ours) == 1 && sp.ours[0].key() == want.key() {
		return d, nil
	}
	diff = diffLines(trustLines(sp.ours), trustLines([]statement{want}))
	if len(diff) == 0 {
		diff = []string{"- a second statement for " + t.ProviderARN + ", or one in another spelling"}
	}
	d.statements = slices.Insert(sp.foreign, sp.at, want)
	return d, diff
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
		s.Principal = map[string][]string{"Federated": {providerARN}}
		gone = append(gone, s)
	}
	d.statements = rest
	return d, diffLines(trustLines(gone), nil)
}

// withoutPrincipal returns s without one of its providers, and whether a principal is left.
func (s statement) withoutPrincipal(providerARN string) (statement, bool) {
	left := map[string][]string{}
	for kind, values := range s.Principal {
		if kind == "Federated" {
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == providerARN })
		}
		if len(values) > 0 {
			left[kind] = values
		}
	}
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
	for _, s := range d.split(providerARN).foreign {
		if s.isOtherIssuer(providers) {
			issuers = append(issuers, s.principals())
			continue
		}
		extra = append(extra, s.trustLine())
	}
	slices.Sort(issuers)
	slices.Sort(extra)
	return slices.Compact(issuers), slices.Compact(extra)
}

// Subjects returns the subjects that our statements for an issuer let in, as they are written there: "*" stands for a
// statement that asks for none. They are sorted, once each.
func (d Document) Subjects(t Trust) []string {
	var out []string
	for _, s := range d.split(t.ProviderARN).ours {
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
	sp := d.split(t.ProviderARN)
	if len(sp.ours) != 1 {
		return nil
	}
	return sp.ours[0].Condition["StringEquals"][HostPath(t.Issuer)+":aud"]
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
