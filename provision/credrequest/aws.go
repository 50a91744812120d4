package credrequest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// AWSSpec is what a request asks of AWS.
type AWSSpec struct {
	Statements []Statement // empty only if RoleARN is given
	RoleARN    string      // stsIAMRoleARN: a role that exists, so that only the Secret is to be made
}

// Statement is one statement of a permissions policy. Effect is Allow or Deny. Condition is operator → key → value: text, a
// boolean, a number or a list of these, as in the manifest.
type Statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]json.RawMessage `json:",omitempty"`
}

// Policy renders statements as the permissions policy of a role, byte for byte as ccoctl does: compact, conditions
// sorted, <, > and & escaped. It fails only on a condition value that JSON has no form for.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
func Policy(statements []Statement) ([]byte, error) {
	if statements == nil {
		statements = []Statement{}
	}
	return json.Marshal(struct {
		Version   string
		Statement []Statement
	}{"2012-10-17", statements})
}

var (
	roleARN = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$`)
	action  = regexp.MustCompile(`^(\*|[^\s:,]+:[^\s,]+)$`)
)

func (r *reader) aws(provider json.RawMessage) AWSSpec {
	var in struct {
		RoleARN    string                       `json:"stsIAMRoleARN"`
		Statements []map[string]json.RawMessage `json:"statementEntries"`
	}
	r.decode(inProvider, provider, &in)
	r.has(inProvider+".stsIAMRoleARN", in.RoleARN, roleARN.MatchString, "the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)")
	s := AWSSpec{RoleARN: in.RoleARN}
	for i, members := range in.Statements {
		s.Statements = append(s.Statements, r.statement(fmt.Sprintf("%s.statementEntries[%d]", inProvider, i), members))
	}
	if s.RoleARN == "" && len(s.Statements) == 0 {
		r.fail("%s.statementEntries: it is empty; AWS refuses a policy without a statement", inProvider)
	}
	return s
}

// statement reads a statement, whatever the case of its fields: IAM's own policies, from which statements are copied, write
// Effect and Action. Unknown fields are an error here and nowhere else: to ignore a misspelt policyCondition would grant more
// than was asked for.
func (r *reader) statement(path string, members map[string]json.RawMessage) (s Statement) {
	fields := map[string]any{"effect": &s.Effect, "action": &s.Action, "resource": &s.Resource, "policycondition": &s.Condition}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lower, value := strings.ToLower(name), members[name]
		if lower == "action" && strings.HasPrefix(string(value), `"`) { // a single one is not in a list, as with IAM
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		if fields[lower] == nil {
			r.fail("%s.%s: a statement has no such field, or has it already; it has effect, action, resource and policyCondition", path, printable(name))
			return s
		}
		r.decode(path+"."+name, value, fields[lower])
		delete(fields, lower)
	}
	r.each(path+".action", s.Action, action.MatchString, "an action (SERVICE:NAME); several go into a list")
	switch {
	case len(s.Action) == 0:
		r.fail("%s.action: it is empty; name the actions as a list", path)
	case s.Effect != "Allow" && s.Effect != "Deny":
		r.fail("%s.effect: it is %q; write Allow or Deny", path, shorten(s.Effect))
	case s.Resource != "*" && !strings.HasPrefix(s.Resource, "arn:"):
		r.fail("%s.resource: it is %q; write one ARN, or * for every resource", path, shorten(s.Resource))
	}
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		at := path + ".policyCondition." + printable(operator)
		if len(s.Condition[operator]) == 0 {
			r.fail("%s: it is empty; write it as KEY: VALUE", at)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
			if !isConditionValue(s.Condition[operator][key]) {
				r.fail("%s.%s: write text, a number, true, false, or a list of these", at, printable(key))
			}
		}
	}
	return s
}

// isConditionValue reports whether IAM accepts a value.
func isConditionValue(raw json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		list = []json.RawMessage{raw}
	}
	return !slices.ContainsFunc(list, func(v json.RawMessage) bool {
		return strings.HasPrefix(string(v), "{") || strings.HasPrefix(string(v), "[") || string(v) == "null"
	})
}
