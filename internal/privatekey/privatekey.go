// Package privatekey finds private keys that were handed in by mistake: by the label of their text form, or by the private
// members of a JWK. A private key in a public document is compromised, and its owner has to know.
//
// It does not look into other encodings, such as base64 without a label.
package privatekey

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// ErrFound is wrapped by the refusal of input that holds a private key.
var ErrFound = errors.New("it is a private key")

// Members returns the members of a JWK whose class is "Private" in the IANA registry "JSON Web Key Parameters".
func Members() []string { return []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"} }

// privateLabels are in every text form of a private key: PEM, OpenPGP, SSH.COM, PuTTY.
var privateLabels = [][]byte{
	[]byte("PRIVATE KEY-----"), []byte("PRIVATE KEY BLOCK-----"), []byte("PRIVATE KEY ----"), []byte("PuTTY-User-Key-File-"),
}

// HasLabel reports whether data has the label of a private key in one of its text forms.
func HasLabel(data []byte) bool {
	return slices.ContainsFunc(privateLabels, func(label []byte) bool { return bytes.Contains(data, label) })
}

// Find returns the path of the first private key in a tree of JSON values (map[string]any, []any, string), whose depth must
// be bounded: a text with the label of one or with a private JWK, or a private member of a JWK.
func Find(tree any) (where string, found bool) {
	where, found = find(tree)
	return strings.TrimLeft(where, ". "), found
}

func find(node any) (where string, found bool) {
	switch n := node.(type) {
	case string:
		return "", inText(n)
	case []any:
		for i, v := range n {
			if below, has := find(v); has {
				return fmt.Sprintf("[%d]%s", i, below), true
			}
		}
	case map[string]any:
		isJWK := slices.ContainsFunc([]string{"kid", "kty", "crv", "x5c"}, func(name string) bool { _, has := n[name]; return has })
		for _, name := range slices.Sorted(maps.Keys(n)) {
			if inText(name) { // an error must not quote it
				return " (the name of a member)", true
			}
			if isJWK && slices.Contains(Members(), name) {
				return "." + name, true
			}
			if below, has := find(n[name]); has {
				return "." + name + below, true
			}
		}
	}
	return "", false
}

var (
	ktyMember     = regexp.MustCompile(`\bkty\b\\*["']?\s*:`)
	privateMember = regexp.MustCompile(`(?:^|[\s{,"'])(?:d|p|q|dp|dq|qi|k|priv)\\*["']?\s*:\s*\\*["']?[0-9A-Za-z_-]{8}`)
)

// inText also recognises a private JWK in the notation of JSON or YAML within other text, such as an annotation of kubectl's.
func inText(s string) bool {
	return HasLabel([]byte(s)) || strings.Contains(s, "kty") && ktyMember.MatchString(s) && privateMember.MatchString(s)
}
