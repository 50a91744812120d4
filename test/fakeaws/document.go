package fakeaws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// document is an IAM policy in its JSON form
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html).
type document struct {
	Version    string      `json:",omitempty"`
	ID         string      `json:"Id,omitempty"`
	Statements []statement `json:"Statement"`
}

// statement has its members in the order in which AWS writes them. Empty lists stand for what is not there.
type statement struct {
	Sid          string                          `json:",omitempty"`
	Effect       string                          `json:",omitempty"`
	Principal    principal                       `json:",omitempty"`
	NotPrincipal principal                       `json:",omitempty"`
	Action       oneOrMany                       `json:",omitempty"`
	NotAction    oneOrMany                       `json:",omitempty"`
	Resource     oneOrMany                       `json:",omitempty"`
	NotResource  oneOrMany                       `json:",omitempty"`
	Condition    map[string]map[string]oneOrMany `json:",omitempty"`
}

// oneOrMany is a value or a list of values. A list of one is written as the value: AWS does so with trust policies, and
// anyone who compares text instead of meaning shall find out here.
type oneOrMany []string

func (m oneOrMany) MarshalJSON() ([]byte, error) {
	if len(m) == 1 {
		return plainly(m[0])
	}
	return plainly([]string(m))
}

// plainly is JSON in which <, > and & stand for themselves.
func plainly(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

func (m *oneOrMany) UnmarshalJSON(b []byte) error {
	var value any
	if err := json.Unmarshal(b, &value); err != nil {
		return err
	}
	many, ok := value.([]any)
	if !ok {
		many = []any{value}
	}
	*m = oneOrMany{}
	for _, v := range many {
		switch v := v.(type) {
		case string:
			*m = append(*m, v)
		case bool, float64:
			*m = append(*m, fmt.Sprint(v))
		default:
			return fmt.Errorf("%T is not a value of a policy", v)
		}
	}
	return nil
}

// principal is the principals by kind. The principal "*" is {"*": "*"}.
type principal map[string]oneOrMany

func (p *principal) UnmarshalJSON(b []byte) error {
	if string(b) == `"*"` {
		*p = principal{"*": {"*"}}
		return nil
	}
	m := map[string]oneOrMany{}
	err := json.Unmarshal(b, &m)
	*p = m
	return err
}

// parseDocument reads what every policy must be, whatever it is for.
func parseDocument(s string) (document, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		return document{}, malformed("This policy contains invalid Json")
	}
	if !knows(raw, "Version", "Id", "Statement") || len(raw["Statement"]) == 0 {
		return document{}, syntaxError()
	}
	if b := bytes.TrimSpace(raw["Statement"]); b[0] == '{' {
		raw["Statement"] = append(append([]byte{'['}, b...), ']')
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal(raw["Statement"], &parts) != nil {
		return document{}, syntaxError()
	}
	for _, p := range parts {
		if !knows(p, "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition") {
			return document{}, syntaxError()
		}
	}
	whole, err := json.Marshal(raw)
	if err != nil {
		return document{}, err
	}
	var d document
	if json.Unmarshal(whole, &d) != nil {
		return document{}, syntaxError()
	}
	return d, d.check()
}

// knows finds members that are not in the grammar; names count letter for letter, as encoding/json does not.
func knows(m map[string]json.RawMessage, names ...string) bool {
	for k := range m {
		if !slices.Contains(names, k) {
			return false
		}
	}
	return m != nil
}

func syntaxError() error { return malformed("Syntax errors in policy.") }

func (d document) check() error {
	if d.Version != "" && d.Version != "2012-10-17" && d.Version != "2008-10-17" {
		return malformed("The policy must contain a valid version string")
	}
	if len(d.Statements) == 0 {
		return syntaxError()
	}
	for _, s := range d.Statements {
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

func (s statement) check() error {
	switch {
	case s.Effect == "":
		return malformed("Missing required field Effect")
	case s.Effect != "Allow" && s.Effect != "Deny":
		return malformed("Invalid effect: %s", s.Effect)
	case s.Action != nil && s.NotAction != nil || s.Resource != nil && s.NotResource != nil || s.Principal != nil && s.NotPrincipal != nil:
		return syntaxError()
	}
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		if _, err := parseOperator(operator); err != nil {
			return err
		}
		for key := range s.Condition[operator] {
			if !strings.Contains(key, ":") {
				return malformed("Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")
			}
		}
	}
	return nil
}

func (s statement) actions() oneOrMany   { return slices.Concat(s.Action, s.NotAction) }
func (s statement) resources() oneOrMany { return slices.Concat(s.Resource, s.NotResource) }

// checkTrust reports whether a document can be a role's trust policy.
func (d document) checkTrust() error {
	for _, s := range d.Statements {
		switch {
		case s.Resource != nil || s.NotResource != nil:
			return malformed("Has prohibited field Resource")
		case s.NotPrincipal != nil: // https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_notprincipal.html
			return malformed("Has prohibited field NotPrincipal")
		case len(s.Principal) == 0:
			return malformed("Missing required field Principal")
		case len(s.actions()) == 0:
			return malformed("Missing required field Action")
		}
		for _, a := range s.actions() {
			if !regexp.MustCompile(`(?i)^sts:(AssumeRole|TagSession|SetSourceIdentity|SetContext|\*)`).MatchString(a) {
				return malformed("AssumeRole policy may only specify STS AssumeRole actions.")
			}
		}
	}
	return nil
}

// checkPermissions reports whether a document can be an inline policy of a role.
func (d document) checkPermissions() error {
	for _, s := range d.Statements {
		switch {
		case s.Principal != nil || s.NotPrincipal != nil:
			return malformed("Policy document should not specify a principal.")
		case len(s.actions()) == 0:
			return malformed("Policy statement must contain actions.")
		case len(s.resources()) == 0:
			return malformed("Policy statement must contain resources.")
		}
		for _, a := range s.actions() {
			if !regexp.MustCompile(`^(\*|[\w-]+:[\w*?]+)$`).MatchString(a) {
				return malformed("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")
			}
		}
	}
	return nil
}

// normalized is a trust policy as AWS keeps it: compact, the members in AWS's order, lists of one as their value.
func (d document) normalized() (string, error) {
	b, err := plainly(d)
	return string(b), err
}
