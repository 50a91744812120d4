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

// operator is a condition operator
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html).
type operator string

const operatorPattern = `^(?:(ForAllValues|ForAnyValue):)?(String(?:Not)?(?:Equals(?:IgnoreCase)?|Like)|Arn(?:Not)?(?:Equals|Like)|` +
	`(?:Not)?IpAddress|Bool|Null|BinaryEquals|(?:Numeric|Date)(?:(?:Not)?Equals|(?:Less|Greater)Than(?:Equals)?))(IfExists)?$`

func parseOperator(name string) (operator, error) {
	if !regexp.MustCompile(operatorPattern).MatchString(name) {
		return "", malformed("Invalid Condition type : %s.", name)
	}
	return operator(name), nil
}

// holds compares the values that a key has with those that the policy wants. What is not a plain test of text holds never: no scenario
// asks for more of a web identity.
func (o operator) holds(have, wanted []string) bool {
	if !strings.HasPrefix(string(o), "String") {
		return false
	}
	found := slices.ContainsFunc(have, func(value string) bool {
		return slices.ContainsFunc(wanted, func(w string) bool { return o.equal(w, value) })
	})
	return found != strings.HasPrefix(string(o), "StringNot")
}

func (o operator) equal(wanted, value string) bool {
	switch strings.Replace(string(o), "Not", "", 1) {
	case "StringEqualsIgnoreCase":
		return strings.EqualFold(wanted, value)
	case "StringLike":
		return wildcard(wanted, value, false)
	}
	return wanted == value
}
