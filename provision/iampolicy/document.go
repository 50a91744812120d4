// Package iampolicy reads, compares and extends IAM policy documents. It promises that statements which it does not change
// keep their bytes, and that documents are compared by meaning: order, spelling, white space and grouping do not count. What
// differs is shown in IAM's own language: a line is a statement. It makes no network calls.
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

	kjson "sigs.k8s.io/json"
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
	var in struct {
		Version   string
		ID        string `json:"Id"`
		Statement json.RawMessage
	}
	if err := strictly([]byte(text), &in); err != nil {
		return Document{}, fmt.Errorf("the policy is not a JSON policy document: %w", err)
	}
	var list []json.RawMessage
	if bytes.HasPrefix(in.Statement, []byte("{")) { // IAM's grammar allows one without a list around it
		list = append(list, in.Statement)
	} else if err := json.Unmarshal(in.Statement, &list); err != nil || len(list) == 0 {
		return Document{}, errors.New("the policy has no list of statements")
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

// strictly decodes JSON. A name that is written twice, in another case, or that IAM does not have is an error.
func strictly(raw []byte, into any) error {
	wrong, err := kjson.UnmarshalStrict(raw, into)
	return errors.Join(append(wrong, err)...)
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

// statement is a statement in normal form: two of the same meaning are equal but for raw and Sid.
type statement struct {
	raw                                      json.RawMessage // as it was written
	Sid                                      string          `json:",omitempty"` // a label; no meaning
	Effect                                   string
	Principal, NotPrincipal                  principals                   `json:",omitempty"`
	Action, NotAction, Resource, NotResource values                       `json:",omitempty"`
	Condition                                map[string]map[string]values `json:",omitempty"` // operator: key: values
}

func parseStatement(raw json.RawMessage) (statement, error) {
	s := statement{raw: raw}
	if err := strictly(raw, &s); err != nil {
		return statement{}, fmt.Errorf("a statement of the policy is not one that IAM knows: %w", err)
	}
	if s.Effect != "Allow" && s.Effect != "Deny" {
		return statement{}, fmt.Errorf("the Effect of a statement is %q: write Allow or Deny", s.Effect)
	}
	return s, nil
}

// line returns the statement in its normal form, for the reader. All statements of this meaning have the same.
func (s statement) line() string {
	s.Sid = ""
	return string(asJSON(s))
}

// everybody is the kind of the principal "*", which is written by itself.
const everybody = "*"

// principals are by kind: Federated, AWS, Service, everybody.
type principals map[string]values

// UnmarshalJSON implements [json.Unmarshaler].
func (p *principals) UnmarshalJSON(raw []byte) error {
	if string(raw) == `"*"` {
		*p = principals{everybody: {"*"}}
		return nil
	}
	return json.Unmarshal(raw, (*map[string]values)(p))
}

// MarshalJSON implements [json.Marshaler].
func (p principals) MarshalJSON() ([]byte, error) {
	if p[everybody] != nil {
		return []byte(`"*"`), nil
	}
	return json.Marshal(map[string]values(p))
}

// values is a sorted set of strings. A scalar is a set of one, true is "true", and numbers keep their digits.
type values []string

// UnmarshalJSON implements [json.Unmarshaler].
func (v *values) UnmarshalJSON(raw []byte) error {
	var list []json.RawMessage
	if raw[0] != '[' {
		list = append(list, raw)
	} else if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	set := values{}
	for _, e := range list {
		value := string(e)
		switch e[0] {
		case '"':
			if err := json.Unmarshal(e, &value); err != nil {
				return err
			}
		case '{', '[', 'n': // null
			return fmt.Errorf("%s is not a value or a list of values", raw)
		}
		set = append(set, value)
	}
	slices.Sort(set)
	*v = slices.Compact(set)
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (v values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]string(v))
}

// decode returns JSON as Go values. Numbers keep their digits.
func decode(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
