package awsiam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// document is a policy whose statements are kept as they were written: what is not ours goes back byte for byte.
type document struct {
	Version   string            `json:"Version,omitempty"`
	ID        string            `json:"Id,omitempty"`
	Statement []json.RawMessage `json:"Statement"`
}

const policyVersion = "2012-10-17"

// parseDocument reads a policy as IAM hands it out, URL-encoded (RFC 3986) or not.
func parseDocument(text string) (document, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		plain, err := url.PathUnescape(text)
		if err != nil {
			return document{}, fmt.Errorf("the policy is neither JSON nor URL-encoded: %w", err)
		}
		text = plain
	}
	var in struct {
		Version   string          `json:"Version"`
		ID        string          `json:"Id"`
		Statement json.RawMessage `json:"Statement"`
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return document{}, fmt.Errorf("the policy is not a JSON policy document: %w", err)
	}
	d := document{Version: in.Version, ID: in.ID}
	if bytes.HasPrefix(bytes.TrimSpace(in.Statement), []byte("{")) {
		d.Statement = []json.RawMessage{in.Statement} // IAM's grammar allows one without a list around it
	} else if err := json.Unmarshal(in.Statement, &d.Statement); err != nil || len(d.Statement) == 0 {
		return document{}, fmt.Errorf("the policy has no list of statements")
	}
	for _, s := range d.Statement {
		if _, err := parseStatement(s); err != nil {
			return document{}, err
		}
	}
	return d, nil
}

// String writes the document. json.Marshal would rewrite the white space of the statements and escape <, > and &.
func (d document) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for _, m := range []struct{ name, value string }{{"Version", d.Version}, {"Id", d.ID}} {
		if m.value != "" {
			fmt.Fprintf(&b, "%q:%s,", m.name, asJSON(m.value))
		}
	}
	b.WriteString(`"Statement":[`)
	for i, s := range d.Statement {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(s)
	}
	b.WriteString("]}")
	return b.String()
}

// fit writes the document with at most limit characters, without the white space between its parts if it does not
// fit otherwise. IAM counts inline policies without it; of trust policies AWS does not say.
func (d document) fit(limit int) (string, error) {
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

// asJSON is for values made of strings, lists and maps, which always marshal.
func asJSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}

// statement is one with its lists made plain: every value is a sorted set of strings, a scalar is a set of one, true
// is "true". So two statements that mean the same look the same, whatever their order, spelling and white space.
type statement struct {
	Effect    string
	Elements  map[string][]string            // Action, NotAction, Resource, NotResource: values
	Principal map[string][]string            // "Federated", "NotPrincipal AWS" …: values; "*" alone is {"": "*"}
	Condition map[string]map[string][]string // operator: key: values
}

func parseStatement(raw json.RawMessage) (statement, error) {
	s := statement{Elements: map[string][]string{}, Principal: map[string][]string{}, Condition: map[string]map[string][]string{}}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return statement{}, fmt.Errorf("a statement of the policy is not a JSON object: %w", err)
	}
	for name, value := range members {
		if err := s.add(name, value); err != nil {
			return statement{}, fmt.Errorf("%s of a statement: %w", name, err)
		}
	}
	return s, nil
}

func (s *statement) add(name string, value json.RawMessage) error {
	switch name {
	case "Sid": // a label without meaning
		return nil
	case "Effect":
		return json.Unmarshal(value, &s.Effect)
	case "Principal", "NotPrincipal":
		return s.addPrincipal(strings.TrimSuffix(name, "Principal"), value)
	case "Condition":
		return s.addCondition(value)
	}
	values, err := stringSet(value)
	s.Elements[name] = values
	return err
}

func (s *statement) addPrincipal(prefix string, value json.RawMessage) error {
	var kinds map[string]json.RawMessage
	if json.Unmarshal(value, &kinds) != nil {
		kinds = map[string]json.RawMessage{"": value} // "*"
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

// stringSet makes a sorted set of a scalar or a list of scalars. Numbers keep their digits.
func stringSet(raw json.RawMessage) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
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

// key is one string for all statements of this meaning.
func (s statement) key() string { return string(asJSON(s)) }

// keys is the meaning of a document: its version and the set of its statements.
func (d document) keys() (map[string]bool, error) {
	out := map[string]bool{}
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return nil, err
		}
		out[s.key()] = true
	}
	return out, nil
}

// grants are a document's permissions one by one, as readable lines: "Allow ACTION on RESOURCE if …". How they are
// grouped into statements is gone, so documents with the same grants permit the same.
func (d document) grants() (map[string]bool, error) {
	out := map[string]bool{}
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return nil, err
		}
		for _, line := range s.grants() {
			out[line] = true
		}
	}
	return out, nil
}

func (s statement) grants() []string {
	actions, resources := quoted(s.Elements["Action"]), quoted(s.Elements["Resource"])
	if actions == nil { // all but these: it cannot be split without changing its meaning
		actions = []string{"all but " + plainly(s.Elements["NotAction"])}
	}
	if resources == nil {
		resources = []string{"all but " + plainly(s.Elements["NotResource"])}
	}
	condition := s.conditionLine()
	var out []string
	for _, a := range actions {
		for _, r := range resources {
			out = append(out, fmt.Sprintf("%s %s on %s%s", s.Effect, a, r, condition))
		}
	}
	return out
}

// plainly lists values for a reader, and so that two different lists never look the same.
func plainly(values []string) string { return strings.Join(quoted(values), ", ") }

func quoted(values []string) []string {
	var out []string
	for _, v := range values {
		if v == "" || strings.ContainsAny(v, "\" ,\t\n") {
			v = string(asJSON(v))
		}
		out = append(out, v)
	}
	return out
}

func (s statement) conditionLine() string {
	lines := s.conditions()
	if len(lines) == 0 {
		return ""
	}
	return " if " + strings.Join(lines, " and ")
}

// conditions are readable lines, sorted: "StringEquals KEY VALUE, VALUE".
func (s statement) conditions() []string {
	var out []string
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		keys := s.Condition[operator]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, fmt.Sprintf("%s %s %s", plainly([]string{operator}), plainly([]string{key}), plainly(keys[key])))
		}
	}
	return out
}

// principals are readable and sorted.
func (s statement) principals() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(s.Principal)) {
		for _, v := range s.Principal[kind] {
			if strings.HasPrefix(kind, "Not") {
				v = "all but " + v
			}
			out = append(out, v)
		}
	}
	return out
}

// write is a policy to put: its text, and what it changes. Without a diff there is nothing to put.
type write struct {
	text string
	diff []string
}

// change is what leads from one permissions policy to another: first what adds, then what takes away.
type change struct {
	early, late write
	lost        []string // grants that late takes away, and refusals that it brings
	whole       bool     // late does all of it
}

// compare tells old and now apart by what they permit. In between stands the union of both, unless it does not fit, or
// what they refuse differs too: then late makes the whole change, as no order of two writes is better than one.
func compare(old, now document) (change, error) {
	was, err := old.grants()
	if err != nil {
		return change{}, err
	}
	is, err := now.grants()
	if err != nil {
		return change{}, err
	}
	text, err := now.fit(inlineLimit)
	if err != nil {
		return change{}, err
	}
	whole := change{late: write{text, diffLines(was, is)}, lost: lost(was, is), whole: true}
	union, err := old.union(now)
	if err != nil {
		return change{}, err
	}
	unionText, err := union.fit(inlineLimit)
	if err != nil || slices.ContainsFunc(whole.late.diff, func(l string) bool { return isDeny(l[len("+ "):]) }) {
		return whole, nil
	}
	between := maps.Clone(was)
	maps.Copy(between, is)
	c := change{early: write{unionText, diffLines(was, between)}, late: write{text, diffLines(between, is)}, lost: whole.lost}
	if len(c.late.diff) == 0 {
		c.early.text = text // the same permissions, as they were written
	}
	return c, nil
}

func isDeny(grant string) bool { return strings.HasPrefix(grant, "Deny ") }

// lost is what is no longer permitted: an Allow that goes, a Deny that comes.
func lost(was, is map[string]bool) []string {
	allowed := func(line string) bool { return !isDeny(line) }
	return slices.Concat(slices.DeleteFunc(without(was, is), isDeny), slices.DeleteFunc(without(is, was), allowed))
}

func without(a, b map[string]bool) []string {
	var out []string
	for k := range a {
		if !b[k] {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// union has the statements of both documents, once each.
func (d document) union(e document) (document, error) {
	out := document{Version: e.Version}
	seen := map[string]bool{}
	for _, raw := range slices.Concat(d.Statement, e.Statement) {
		s, err := parseStatement(raw)
		if err != nil {
			return document{}, err
		}
		if k := s.key(); !seen[k] {
			seen[k] = true
			out.Statement = append(out.Statement, raw)
		}
	}
	return out, nil
}
