package iampolicy

import (
	"maps"
	"slices"
	"strings"
)

// Identity is what a web identity token says to IAM, by way of the provider of its issuer.
type Identity struct {
	ProviderARN string
	Issuer      string // URL
	Subject     string // sub; empty if it is not known
	Audience    string // azp, else aud; empty if it is not known
}

// Truth is the answer to a question that cannot always be answered from outside.
type Truth int

// The answers. They are in order: of several conditions that must all hold, the least counts.
const (
	No Truth = iota
	Unknown
	Yes
)

func truth(yes bool) Truth {
	if yes {
		return Yes
	}
	return No
}

func (t Truth) not() Truth { return Yes - t }

// Judgement is what one statement of a trust policy makes of an attempt to assume the role with a web identity token.
type Judgement struct {
	Number    int  // from 1, as a reader of the policy counts
	Deny      bool // its Effect
	Principal Truth
	Action    Truth
	Tests     []Test // its conditions, in the order of operator and key
}

// Test is one condition of a statement.
type Test struct {
	Operator, Key string
	Values        []string // of the policy, sorted
	Claim         string   // the key's claim if it is a key of the identity's issuer ("sub", "aud"), else empty
	OtherIssuer   bool     // the key is one of another issuer: a token of this one has no value for it
	Holds         Truth
}

// Applies reports whether the statement has its effect.
func (j Judgement) Applies() Truth {
	t := min(j.Principal, j.Action)
	for _, test := range j.Tests {
		t = min(t, test.Holds)
	}
	return t
}

// Judge evaluates a trust policy for sts:AssumeRoleWithWebIdentity by IAM's rules, statement by statement. What depends on
// more than the identity (the caller's address, a policy variable) is Unknown, and so is the key of a condition in another
// case than the issuer's URL: IAM ignores the case of its own keys, and does not document it for those of an issuer.
//
// Sources: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html,
// reference_policies_evaluation-logic.html and reference_policies_iam-condition-keys.html beside it.
func (d Document) Judge(id Identity) []Judgement {
	var all []Judgement
	for i, s := range d.statements {
		j := Judgement{Number: i + 1, Deny: s.Effect == "Deny", Principal: s.isFor(id.ProviderARN), Action: truth(s.takes(assumeRole))}
		for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
			for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
				j.Tests = append(j.Tests, id.test(operator, key, s.Condition[operator][key]))
			}
		}
		all = append(all, j)
	}
	return all
}

// isFor reports whether a statement is about a provider. "*" is everybody.
func (s statement) isFor(providerARN string) Truth {
	switch {
	case s.names(providerARN), s.Principal[everybody] != nil:
		return Yes
	case slices.Contains(s.Principal["AWS"], "*"), slices.Contains(s.Principal["Federated"], "*"), s.NotPrincipal != nil:
		return Unknown
	}
	return No
}

// takes reports whether a statement is about an action.
func (s statement) takes(action string) bool {
	is := func(a string) bool { return matches(strings.ToLower(a), strings.ToLower(action)) }
	if s.NotAction != nil {
		return !slices.ContainsFunc(s.NotAction, is)
	}
	return slices.ContainsFunc(s.Action, is)
}

func (id Identity) test(operator, key string, values []string) Test {
	t := Test{Operator: operator, Key: key, Values: values}
	owner, claim, spelled := "", "", true
	if i := strings.LastIndex(key, ":"); i >= 0 {
		owner, claim = key[:i], key[i+1:]
	}
	if strings.EqualFold(owner, HostPath(id.Issuer)) {
		t.Claim, spelled = claim, owner == HostPath(id.Issuer)
	}
	// A key of IAM's own begins with the name of a service, which has no dot; an issuer's begins with its host.
	t.OtherIssuer = t.Claim == "" && strings.Contains(owner, ".")
	op := parseOperator(operator)
	have := ""
	switch {
	case !spelled, t.Claim == "" && !t.OtherIssuer:
		return t.with(Unknown)
	case claim == "sub" && t.Claim != "":
		have = id.Subject
	case claim == "aud" && t.Claim != "":
		have = id.Audience
	default:
		return t.with(op.absent(values))
	}
	if have == "" {
		return t.with(op.present(values))
	}
	return t.with(op.compare(have, values))
}

func (t Test) with(holds Truth) Test {
	t.Holds = holds
	return t
}

// operator is a condition operator taken apart.
type operator struct {
	base     string // "StringEquals", without Not
	not      bool
	all, any bool // ForAllValues, ForAnyValue
	ifExists bool
}

func parseOperator(name string) operator {
	var o operator
	name, o.all = strings.CutPrefix(name, "ForAllValues:")
	name, o.any = strings.CutPrefix(name, "ForAnyValue:")
	name, o.ifExists = strings.CutSuffix(name, "IfExists")
	o.base = strings.Replace(name, "StringNot", "String", 1)
	o.not = o.base != name
	return o
}

// absent is the outcome for a key that the request does not have.
func (o operator) absent(wanted []string) Truth {
	if o.base == "Null" {
		return truth(slices.Contains(wanted, "true"))
	}
	return truth(o.ifExists || o.all || o.not && !o.any)
}

// present is the outcome for a key whose value is not known.
func (o operator) present(wanted []string) Truth {
	if o.base == "Null" {
		return truth(!slices.Contains(wanted, "true"))
	}
	return Unknown
}

// compare is the outcome for a key with one value.
func (o operator) compare(have string, wanted []string) Truth {
	if o.base == "Null" {
		return o.present(wanted)
	}
	found := No
	for _, w := range wanted {
		found = max(found, o.one(have, w))
	}
	if o.not {
		return found.not()
	}
	return found
}

// one compares with one value of the policy. A variable in it stands for what the request says elsewhere.
func (o operator) one(have, wanted string) Truth {
	switch {
	case strings.Contains(wanted, "${"):
		return Unknown
	case o.base == "StringEquals":
		return truth(wanted == have)
	case o.base == "StringEqualsIgnoreCase":
		return truth(strings.EqualFold(wanted, have))
	case o.base == "StringLike":
		return truth(matches(wanted, have))
	}
	return Unknown // a claim is text; what AWS makes of other comparisons with it is not documented
}

// String returns a condition for the reader, as a policy has it.
func (t Test) String() string {
	return string(asJSON(map[string]map[string]values{t.Operator: {t.Key: t.Values}}))
}

// Wildcard reports whether a condition has a value with * or ? that its operator compares letter for letter.
func (t Test) Wildcard() bool {
	return parseOperator(t.Operator).base == "StringEquals" && slices.ContainsFunc(t.Values, func(v string) bool { return strings.ContainsAny(v, "*?") })
}

// Line returns statement number n, from 1, for the reader.
func (d Document) Line(n int) string { return d.statements[n-1].line() }

// AsksFor returns the values that statements which let an identity's provider in ask of a claim, sorted, once each. Patterns
// are not among them. None means that one of them takes any, or that there are no such statements.
func (d Document) AsksFor(id Identity, claim string) []string {
	var out []string
	for i, j := range d.Judge(id) {
		if !d.statements[i].lets(id.ProviderARN) {
			continue
		}
		n := len(out)
		for _, t := range j.Tests {
			if o := parseOperator(t.Operator); t.Claim == claim && !o.not && (o.base == "StringEquals" || o.base == "StringLike") {
				out = append(out, slices.DeleteFunc(slices.Clone(t.Values), func(v string) bool { return strings.ContainsAny(v, "*?$") })...)
			}
		}
		if len(out) == n {
			return nil
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Matches reports whether a string matches a pattern by IAM's rules: * is any number of characters, ? is one.
func Matches(pattern, s string) bool { return matches(pattern, s) }
