package rest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strings"
)

// Minus returns what a has and b does not have, once each, in a's order.
func Minus(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Lines returns the lines of a diff.
func Lines(less string, gone []string, more string, added []string) []string {
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

// Cut returns so many bytes of s at most, and no half of a letter.
func Cut(s string, limit int) string { return strings.ToValidUTF8(s[:min(len(s), limit)], "") }

// Hashed returns five letters or digits that stand for s.
func Hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:5])
}

// Readable returns a value as JSON for people.
func Readable(v any) []byte {
	var out bytes.Buffer
	_ = json.Indent(&out, JSON(v), "", "    ") // it was just marshaled
	out.WriteByte('\n')
	return out.Bytes()
}
