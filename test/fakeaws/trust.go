package fakeaws

import (
	"regexp"
	"slices"
	"strings"
)

// trusts evaluates a trust policy for a federated principal, an ARN, with the values of its condition keys. Keys count
// letter for letter.
func (d document) trusts(federated, action string, keys map[string][]string) bool {
	allowed := false
	for _, s := range d.Statements {
		if !matchesAny(s.Action, action, true) || !slices.Contains(s.Principal["Federated"], federated) || !s.holds(keys) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = true
	}
	return allowed
}

// holds reports whether all of a statement's conditions do.
func (s statement) holds(keys map[string][]string) bool {
	for name, tests := range s.Condition {
		op, err := parseOperator(name)
		if err != nil {
			return false
		}
		for key, wanted := range tests {
			if !op.holds(keys[key], wanted) {
				return false
			}
		}
	}
	return true
}

// operator is a condition operator taken apart
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html).
type operator struct {
	base     string
	all      bool // ForAllValues
	any      bool // ForAnyValue
	ifExists bool
}

const operatorPattern = `^(?:(ForAllValues|ForAnyValue):)?(String(?:Not)?(?:Equals(?:IgnoreCase)?|Like)|Arn(?:Not)?(?:Equals|Like)|` +
	`(?:Not)?IpAddress|Bool|Null|BinaryEquals|(?:Numeric|Date)(?:(?:Not)?Equals|(?:Less|Greater)Than(?:Equals)?))(IfExists)?$`

func parseOperator(name string) (operator, error) {
	m := regexp.MustCompile(operatorPattern).FindStringSubmatch(name)
	if m == nil {
		return operator{}, malformed("Invalid Condition type : %s.", name)
	}
	return operator{base: m[2], all: m[1] == "ForAllValues", any: m[1] == "ForAnyValue", ifExists: m[3] != ""}, nil
}

// holds compares the values that a key has with those that the policy wants. What is not a test of text holds never:
// a web identity has no other keys here.
func (o operator) holds(have, wanted []string) bool {
	if o.base == "Null" {
		return slices.Contains(wanted, "true") == (len(have) == 0)
	}
	if len(have) == 0 {
		return o.ifExists || o.all || !o.any && strings.HasPrefix(o.base, "StringNot")
	}
	one := func(value string) bool {
		found := slices.ContainsFunc(wanted, func(w string) bool { return o.equal(w, value) })
		return found != strings.HasPrefix(o.base, "StringNot")
	}
	if !strings.HasPrefix(o.base, "String") {
		return false
	}
	if o.all {
		return !slices.ContainsFunc(have, func(v string) bool { return !one(v) })
	}
	return slices.ContainsFunc(have, one)
}

func (o operator) equal(wanted, value string) bool {
	switch strings.Replace(o.base, "Not", "", 1) {
	case "StringEqualsIgnoreCase":
		return strings.EqualFold(wanted, value)
	case "StringLike":
		return wildcard(wanted, value, false)
	}
	return wanted == value
}
