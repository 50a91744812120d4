package credrequest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// AWSSpec is what a request asks of AWS.
type AWSSpec struct {
	Statements []Statement // empty only if RoleARN is given
	RoleARN    string      // stsIAMRoleARN: a role that exists, so that only the Secret is to be made
}

// Statement is one statement of a permissions policy. Effect is Allow or Deny. Condition is operator → key → value: a
// string, bool, [json.Number] or list of these, as in the manifest.
type Statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]any `json:",omitempty"`
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

func (m *manifest) aws(provider value) AWSSpec {
	s := AWSSpec{RoleARN: m.matching(m.at(provider, "stsIAMRoleARN"), roleARN.MatchString, "the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)")}
	statements := m.at(provider, "statementEntries")
	for _, v := range m.items(statements) {
		s.Statements = append(s.Statements, m.statement(v))
	}
	if s.RoleARN == "" && len(s.Statements) == 0 {
		m.fail("%s: it is empty; AWS refuses a policy without a statement", statements.path)
	}
	return s
}

// statement reads a statement. Unknown fields are an error here and nowhere else: to ignore a misspelt policyCondition
// would grant more than was asked for.
func (m *manifest) statement(v value) Statement {
	for _, field := range m.members(v) {
		known := func(name string) bool { return strings.EqualFold(name, field.name) }
		if !slices.ContainsFunc([]string{"effect", "action", "resource", "policyCondition"}, known) {
			m.fail("%s: a statement has no such field, but effect, action, resource and policyCondition", field.path)
		}
	}
	s := Statement{
		Effect:    m.text(m.field(v, "effect")),
		Action:    m.actions(m.field(v, "action")),
		Resource:  m.text(m.field(v, "resource")),
		Condition: m.condition(m.field(v, "policyCondition")),
	}
	if s.Effect != "Allow" && s.Effect != "Deny" {
		m.fail("%s.effect: it is %q; write Allow or Deny", v.path, shorten(s.Effect))
	}
	if s.Resource != "*" && !strings.HasPrefix(s.Resource, "arn:") {
		m.fail("%s.resource: it is %q; write one ARN, or * for every resource", v.path, shorten(s.Resource))
	}
	return s
}

// field returns a member of a statement, whatever its case: IAM's own policies, from which statements are copied, write
// Effect and Action.
func (m *manifest) field(v value, name string) value {
	var found []value
	for _, member := range m.members(v) {
		if strings.EqualFold(member.name, name) {
			found = append(found, member)
		}
	}
	switch len(found) {
	case 0:
		return m.at(v, name)
	case 1:
		return found[0]
	}
	m.fail("%s and %s: both are the statement's %s; write one", found[0].path, found[1].path, name)
	return found[0]
}

// actions reads a list of actions, or a single one, as IAM does.
func (m *manifest) actions(v value) []string {
	items := []value{v}
	if _, one := v.raw.(string); !one {
		items = m.items(v)
	}
	var actions []string
	for _, item := range items {
		actions = append(actions, m.matching(item, action.MatchString, "an action (SERVICE:NAME); several go into a list"))
	}
	if len(actions) == 0 || slices.Contains(actions, "") {
		m.fail("%s: it is empty; name the actions as a list", v.path)
	}
	return actions
}

func (m *manifest) condition(v value) map[string]map[string]any {
	if v.raw == nil {
		return nil
	}
	c := map[string]map[string]any{}
	for _, operator := range m.members(v) {
		keys := m.members(operator)
		if len(keys) == 0 {
			m.fail("%s: it is empty; write it as KEY: VALUE", operator.path)
		}
		c[operator.name] = map[string]any{}
		for _, key := range keys {
			m.conditionValue(key)
			c[operator.name][key.name] = key.raw
		}
	}
	return c
}

// conditionValue accepts what IAM accepts: text, booleans, numbers, and lists of these.
func (m *manifest) conditionValue(v value) {
	switch v.raw.(type) {
	case string, bool, json.Number:
		return
	case []any:
		for _, item := range m.items(v) {
			if _, nested := item.raw.([]any); nested {
				m.fail("%s: it is a list in a list", item.path)
			}
			m.conditionValue(item)
		}
		return
	}
	m.fail("%s: it is %s; write text, a number, true, false, or a list of these", v.path, describe(v.raw))
}
