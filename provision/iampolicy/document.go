// Package iampolicy reads, compares and extends IAM policy documents. It promises that statements which it does not change
// keep their bytes, and that documents are compared by meaning: order, spelling, white space and grouping do not count. It
// makes no network calls.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
package iampolicy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Document is a policy. The zero Document has no statements; IAM accepts none such.
type Document struct {
	version, id string
	statements  []statement
}

const version = "2012-10-17"

// Empty reports whether d has no statements.
func (d Document) Empty() bool { return len(d.statements) == 0 }

// Parse reads a policy as IAM returns it, URL-encoded (RFC 3986) or not.
func Parse(text string) (Document, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		plain, err := url.PathUnescape(text)
		if err != nil {
			return Document{}, fmt.Errorf("the policy is neither JSON nor URL-encoded: %w", err)
		}
		text = plain
	}
	var members map[string]json.RawMessage
	var in struct {
		Version   string          `json:"Version"`
		ID        string          `json:"Id"`
		Statement json.RawMessage `json:"Statement"`
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return Document{}, fmt.Errorf("the policy is not a JSON policy document: %w", err)
	}
	_ = json.Unmarshal([]byte(text), &members) // in is read from the same object
	for name := range members {
		if !slices.Contains([]string{"Version", "Id", "Statement"}, name) {
			return Document{}, fmt.Errorf("the policy has the member %q: a policy has only Version, Id and Statement", name)
		}
	}
	if !slices.Contains([]string{"", version, "2008-10-17"}, in.Version) {
		return Document{}, fmt.Errorf("the policy has the version %q: write %s", in.Version, version)
	}
	list := []json.RawMessage{in.Statement} // IAM's grammar allows one without a list around it
	if !bytes.HasPrefix(bytes.TrimSpace(in.Statement), []byte("{")) {
		if err := json.Unmarshal(in.Statement, &list); err != nil || len(list) == 0 {
			return Document{}, errors.New("the policy has no list of statements")
		}
	}
	d := Document{version: in.Version, id: in.ID}
	for _, raw := range list {
		s, err := parseStatement(raw)
		if err != nil {
			return Document{}, err
		}
		d.statements = append(d.statements, s)
	}
	return d, nil
}

// String returns the document as JSON. json.Marshal would rewrite the white space of the statements and escape <, > and &.
func (d Document) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for _, m := range []struct{ name, value string }{{"Version", d.version}, {"Id", d.id}} {
		if m.value != "" {
			fmt.Fprintf(&b, "%q:%s,", m.name, asJSON(m.value))
		}
	}
	b.WriteString(`"Statement":[`)
	for i, s := range d.statements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(s.raw)
	}
	b.WriteString("]}")
	return b.String()
}

// Fit returns the document in at most limit characters, without the white space between its parts if it does not fit
// otherwise. IAM does not count white space in inline policies; for trust policies AWS does not document it.
func (d Document) Fit(limit int) (string, error) {
	text := d.String()
	if utf8.RuneCountInString(text) > limit {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(text)); err != nil {
			return "", err
		}
		text = b.String()
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return "", fmt.Errorf("has %d characters where AWS allows %d", n, limit)
	}
	return text, nil
}

// asJSON marshals a value made of strings, lists and maps, which cannot fail.
func asJSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}

// statement is a statement in normal form: every value is a sorted set of strings, a scalar is a set of one, true is
// "true". Two statements of the same meaning are equal but for raw.
type statement struct {
	raw       json.RawMessage // as it was written
	sid       string          // a label; no meaning
	Effect    string
	Elements  map[string][]string            // Action, NotAction, Resource, NotResource: values
	Principal map[string][]string            // "Federated", "NotPrincipal AWS" …: values; "*" by itself is {"": "*"}
	Condition map[string]map[string][]string // operator: key: values
}

func parseStatement(raw json.RawMessage) (statement, error) {
	s := statement{raw: raw, Elements: map[string][]string{}, Principal: map[string][]string{}, Condition: map[string]map[string][]string{}}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return statement{}, fmt.Errorf("a statement of the policy is not a JSON object: %w", err)
	}
	for name, value := range members {
		if err := s.add(name, value); err != nil {
			return statement{}, fmt.Errorf("%s of a statement: %w", name, err)
		}
	}
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return statement{}, fmt.Errorf("the Effect of a statement is %q: write Allow or Deny", s.Effect)
	}
	for _, name := range []string{"Action", "Resource", "Principal"} {
		if members[name] != nil && members["Not"+name] != nil {
			return statement{}, fmt.Errorf("a statement has %s and Not%s: write one of them", name, name)
		}
	}
	return s, nil
}

func (s *statement) add(name string, value json.RawMessage) error {
	switch name {
	case "Sid":
		return json.Unmarshal(value, &s.sid)
	case "Effect":
		return json.Unmarshal(value, &s.Effect)
	case "Principal", "NotPrincipal":
		return s.addPrincipal(strings.TrimSuffix(name, "Principal"), value)
	case "Condition":
		return s.addCondition(value)
	case "Action", "NotAction", "Resource", "NotResource":
		values, err := stringSet(value)
		s.Elements[name] = values
		return err
	}
	return errors.New("IAM's policies have no such member")
}

func (s *statement) addPrincipal(prefix string, value json.RawMessage) error {
	var kinds map[string]json.RawMessage
	if string(value) == `"*"` {
		kinds = map[string]json.RawMessage{"": value}
	} else if err := json.Unmarshal(value, &kinds); err != nil {
		return err
	}
	for kind, v := range kinds {
		values, err := stringSet(v)
		if err != nil {
			return err
		}
		s.Principal[prefix+kind] = values
	}
	return nil
}

func (s *statement) addCondition(value json.RawMessage) error {
	var operators map[string]map[string]json.RawMessage
	if err := json.Unmarshal(value, &operators); err != nil {
		return err
	}
	for operator, keys := range operators {
		set := make(map[string][]string, len(keys))
		for key, v := range keys {
			values, err := stringSet(v)
			if err != nil {
				return err
			}
			set[key] = values
		}
		s.Condition[operator] = set
	}
	return nil
}

// decode returns JSON as Go values. Numbers keep their digits.
func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// stringSet returns a scalar or a list of scalars as a sorted set. Numbers keep their digits.
func stringSet(raw json.RawMessage) ([]string, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		switch e := e.(type) {
		case string:
			out = append(out, e)
		case bool, json.Number:
			out = append(out, fmt.Sprint(e))
		default:
			return nil, fmt.Errorf("%s is not a value or a list of values", asJSON(v))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// key returns a string that all statements of this meaning share.
func (s statement) key() string { return string(asJSON(s)) }
