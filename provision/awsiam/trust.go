package awsiam

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// How many characters a trust policy may have: as the account's quota L-C07B4B0D is, and the most to which it is raised
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const (
	TrustLength    = 2048
	MaxTrustLength = 8192
)

const (
	inlineLimit = 10240 // characters, no quota raises it
	assumeRole  = "sts:AssumeRoleWithWebIdentity"
)

func (t Trust) limit() int {
	if t.MaxLength > 0 {
		return t.MaxLength
	}
	return TrustLength
}

// statement is our own: these subjects, with a token for one of these audiences. Without :aud, any token that the
// cluster issues for the service account would do, also one that a pod handed to another service.
func (t Trust) statement(subjects []string) json.RawMessage {
	type conditions map[string][]string
	return asJSON(struct {
		Effect    string
		Principal map[string]string
		Action    string
		Condition map[string]conditions
	}{
		Effect:    "Allow",
		Principal: map[string]string{"Federated": t.ProviderARN},
		Action:    assumeRole,
		Condition: map[string]conditions{"StringEquals": {
			hostPath(t.Issuer) + ":aud": slices.Compact(slices.Sorted(slices.Values(t.Audiences))),
			hostPath(t.Issuer) + ":sub": slices.Compact(slices.Sorted(slices.Values(subjects))),
		}},
	})
}

// document is a trust policy of our own statement alone.
func (t Trust) document(subjects []string) document {
	return document{Version: policyVersion, Statement: []json.RawMessage{t.statement(subjects)}}
}

// isOurs reports whether a statement lets this provider's tokens in, and nobody else. A Deny, another action or a
// second principal is somebody's own work: replacing it could let more in than they meant.
func (s statement) isOurs(providerARN string) bool {
	return s.isPlain() && len(s.Principal) == 1 && slices.Equal(s.Principal["Federated"], []string{providerARN})
}

// isPlain reports whether all that a statement does is to let web identity tokens in.
func (s statement) isPlain() bool {
	actions := s.Elements["Action"]
	return s.Effect == "Allow" && len(s.Elements) == 1 && len(actions) == 1 && strings.EqualFold(actions[0], assumeRole)
}

// isOtherIssuer reports whether a statement does for other issuers of the same account what ours does: their providers'
// tokens, and of these only some subjects. A cluster that moves has such a statement, and so has a role of several
// clusters.
func (s statement) isOtherIssuer(a Account) bool {
	own := a.ProviderARN("")
	if !s.isPlain() || len(s.Principal) != 1 || len(s.Principal["Federated"]) == 0 {
		return false
	}
	for _, arn := range s.Principal["Federated"] {
		if !strings.HasPrefix(arn, own) {
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
	if s.Effect != "Allow" || !slices.Contains(s.Principal["Federated"], providerARN) {
		return false
	}
	takes := func(a string) bool { return matches(strings.ToLower(a), strings.ToLower(assumeRole)) }
	if not := s.Elements["NotAction"]; not != nil {
		return !slices.ContainsFunc(not, takes)
	}
	return slices.ContainsFunc(s.Elements["Action"], takes)
}

// split is a trust policy seen from one provider.
type split struct {
	ours    []statement
	foreign []statement       // all others
	rest    []json.RawMessage // these as they are written
	at      int               // how many foreign ones stand before our first
}

func (d document) split(providerARN string) (split, error) {
	sp := split{at: -1}
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return split{}, err
		}
		if s.isOurs(providerARN) {
			if sp.at < 0 {
				sp.at = len(sp.rest)
			}
			sp.ours = append(sp.ours, s)
			continue
		}
		sp.foreign = append(sp.foreign, s)
		sp.rest = append(sp.rest, raw)
	}
	if sp.at < 0 {
		sp.at = len(sp.rest)
	}
	return sp, nil
}

// with sets our statement and leaves the foreign ones as and where they are. The diff is empty if d means that already.
func (d document) with(t Trust, subjects []string) (document, []string, error) {
	sp, err := d.split(t.ProviderARN)
	if err != nil {
		return document{}, nil, err
	}
	raw := t.statement(subjects)
	want, err := parseStatement(raw)
	if err != nil {
		return document{}, nil, err
	}
	if len(sp.ours) == 1 && sp.ours[0].key() == want.key() {
		return d, nil, nil
	}
	diff := diffLines(trustLines(sp.ours), trustLines([]statement{want}))
	if len(diff) == 0 {
		diff = []string{"- a second statement for " + t.ProviderARN + ", or one in another spelling"}
	}
	d.Statement = slices.Insert(slices.Clone(sp.rest), sp.at, raw)
	return d, diff, nil
}

// without takes a provider out of every statement that names it, whatever the statement's form: out of its principals,
// and the statement with the last of them. A document without any statement left is one that IAM refuses.
func (d document) without(providerARN string) (document, []string, error) {
	var rest []json.RawMessage
	var gone []statement
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return document{}, nil, err
		}
		if !slices.Contains(s.Principal["Federated"], providerARN) {
			rest = append(rest, raw)
			continue
		}
		left, err := withoutPrincipal(raw, s, providerARN)
		if err != nil {
			return document{}, nil, err
		}
		if left != nil {
			rest = append(rest, left)
		}
		s.Principal = map[string][]string{"Federated": {providerARN}}
		gone = append(gone, s)
	}
	d.Statement = rest
	return d, diffLines(trustLines(gone), nil), nil
}

// withoutPrincipal is a statement without one of its principals; nil if it was the only one.
func withoutPrincipal(raw json.RawMessage, s statement, providerARN string) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	left := map[string][]string{}
	for kind, values := range s.Principal {
		if kind == "Federated" {
			values = minus(values, []string{providerARN})
		}
		if len(values) > 0 {
			left[kind] = values
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	members["Principal"] = asJSON(left)
	return asJSON(members), nil
}

// trustLines are what statements of a trust policy say, readable: whom they trust or deny, for what if not for a web
// identity token alone, and under which conditions each.
func trustLines(statements []statement) map[string]bool {
	out := map[string]bool{}
	for _, s := range statements {
		who := s.verb() + " " + strings.Join(s.principals(), ", ")
		if what := s.actionLine(); what != "" {
			who += " for " + what
		}
		out[who] = true
		for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
			for key, values := range s.Condition[operator] {
				for _, v := range values {
					out[fmt.Sprintf("%s if %s %s %s", who, operator, key, v)] = true
				}
			}
		}
	}
	return out
}

func (s statement) verb() string {
	if s.Effect == "Allow" {
		return "trust"
	}
	return strings.ToLower(s.Effect)
}

// actionLine is empty for the action of our own statements.
func (s statement) actionLine() string {
	if actions := s.Elements["Action"]; len(actions) == 1 && strings.EqualFold(actions[0], assumeRole) {
		return ""
	}
	if not := s.Elements["NotAction"]; not != nil {
		return "all but " + plainly(not)
	}
	return plainly(s.Elements["Action"])
}

// diffLines lists what goes, then what comes.
func diffLines(was, is map[string]bool) []string {
	var out []string
	for _, l := range without(was, is) {
		out = append(out, "- "+l)
	}
	for _, l := range without(is, was) {
		out = append(out, "+ "+l)
	}
	return out
}

// others sorts what else is in a trust policy: statements for other issuers of the account, and everything else, which
// nobody asked for.
func (sp split) others(a Account) (issuers, extra []string) {
	for _, s := range sp.foreign {
		who := strings.Join(s.principals(), ", ")
		if s.isOtherIssuer(a) {
			issuers = append(issuers, who)
			continue
		}
		line := s.verb() + " " + who
		if what := s.actionLine(); what != "" {
			line += " for " + what
		}
		extra = append(extra, line+s.conditionLine())
	}
	slices.Sort(issuers)
	slices.Sort(extra)
	return slices.Compact(issuers), slices.Compact(extra)
}

// audiences are those that our statement asks for; nil if there is no single one that does.
func (sp split) audiences(t Trust) []string {
	if len(sp.ours) != 1 {
		return nil
	}
	return sp.ours[0].Condition["StringEquals"][hostPath(t.Issuer)+":aud"]
}
