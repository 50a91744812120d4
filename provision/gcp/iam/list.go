package iam

import (
	"slices"
	"strings"
)

// minus returns what a has and b lacks, once each, in a's order.
func minus(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// lines returns the lines of a diff.
func lines(less string, gone []string, more string, added []string) []string {
	var out []string
	for _, s := range gone {
		out = append(out, less+s)
	}
	for _, s := range added {
		out = append(out, more+s)
	}
	return out
}

// put sets a field of nested objects by its path, "oidc.issuerUri".
func put(object map[string]any, path string, value any) {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[name] = value
		return
	}
	inner, _ := object[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		object[name] = inner
	}
	put(inner, rest, value)
}

func joined(fields []string) string { return strings.Join(fields, ",") }
