package credrequest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/dnsname"
)

// label reads the name of a namespace.
func (m *manifest) label(v value) string {
	return m.required(v, m.matching(v, dnsname.IsLabel, "the name of a namespace"))
}

// name reads the name of anything else.
func (m *manifest) name(v value) string {
	return m.required(v, m.matching(v, dnsname.IsSubdomain, "a name that Kubernetes allows, of at most 253 characters"))
}

func (m *manifest) required(v value, s string) string {
	if s == "" {
		m.fail("%s: it is missing", v.path)
	}
	return s
}

// matching reads text that is empty or valid; wanted describes valid text, for the error.
func (m *manifest) matching(v value, has func(string) bool, wanted string) string {
	s := m.text(v)
	if s != "" && !has(s) {
		m.fail("%s: it is %q, which is not %s", v.path, shorten(s), wanted)
	}
	return s
}

// each reads a list of texts, each of which is valid; wanted describes valid text, for the error.
func (m *manifest) each(v value, has func(string) bool, wanted string) []string {
	var texts []string
	for _, item := range m.items(v) {
		texts = append(texts, m.required(item, m.matching(item, has, wanted)))
	}
	return texts
}

// truth reads true or false. An absent value is false.
func (m *manifest) truth(v value) bool {
	b, ok := v.raw.(bool)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write true or false", v.path, describe(v.raw))
	}
	return b
}

// text reads text. An absent value is empty text.
func (m *manifest) text(v value) string {
	s, ok := v.raw.(string)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write text, in quotes if need be", v.path, describe(v.raw))
	}
	return s
}

// at returns a member of a mapping. An absent mapping has none.
func (m *manifest) at(v value, field string) value {
	members, ok := v.raw.(map[string]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as a mapping", v.path, describe(v.raw))
	}
	return v.member(field, members[field])
}

// members returns the members of a mapping with keys of text, in the order of their names. An absent mapping has none.
func (m *manifest) members(v value) []value {
	fields, ok := v.raw.(map[string]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as KEY: VALUE", v.path, describe(v.raw))
	}
	var members []value
	for name, raw := range fields {
		members = append(members, v.member(name, raw))
	}
	slices.SortFunc(members, func(a, b value) int { return strings.Compare(a.name, b.name) })
	return members
}

func (v value) member(name string, raw any) value {
	return value{path: strings.TrimPrefix(v.path+"."+printable(name), "."), name: name, raw: raw}
}

func (m *manifest) items(v value) []value {
	list, ok := v.raw.([]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as a list", v.path, describe(v.raw))
	}
	var items []value
	for i, raw := range list {
		items = append(items, value{path: fmt.Sprintf("%s[%d]", v.path, i), raw: raw})
	}
	return items
}

func describe(raw any) string {
	switch raw := raw.(type) {
	case nil:
		return "empty"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", printable(raw))
	case bool:
		return fmt.Sprintf("the truth value %t", raw)
	}
	return fmt.Sprintf("the number %v", raw)
}
