package iampolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Readable lines of what statements mean. They are shown to the user, and permissions are compared by them.

// grants returns a document's permissions one by one, as readable lines: "Allow ACTION on RESOURCE if …". Documents with
// the same grants permit the same, however they group them into statements.
func (d Document) grants() map[string]bool {
	out := map[string]bool{}
	for _, s := range d.statements {
		for _, line := range s.grants() {
			out[line] = true
		}
	}
	return out
}

func (s statement) grants() []string {
	actions, resources := quoted(s.Elements["Action"]), quoted(s.Elements["Resource"])
	if actions == nil { // a negated list cannot be split without changing its meaning
		actions = []string{"all but " + join(s.Elements["NotAction"])}
	}
	if resources == nil {
		resources = []string{"all but " + join(s.Elements["NotResource"])}
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

// join lists values for the reader. Two different lists never look the same.
func join(values []string) string { return strings.Join(quoted(values), ", ") }

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

// conditionLine returns the conditions for the reader, sorted: " if StringEquals KEY VALUE, VALUE and …".
func (s statement) conditionLine() string {
	var lines []string
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		keys := s.Condition[operator]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			lines = append(lines, fmt.Sprintf("%s %s %s", join([]string{operator}), join([]string{key}), join(keys[key])))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return " if " + strings.Join(lines, " and ")
}

// principals returns the principals for the reader, sorted.
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
