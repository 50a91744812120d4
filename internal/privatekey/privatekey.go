// Package privatekey finds private keys that were handed in by mistake: with a label, as DER in base64, or as a JWK. A
// private key in a public document is compromised, and its owner has to know.
//
// Certificates, public keys and text about keys are not reported. Nor are private keys in other encodings, in pieces, or in
// the middle of other base64.
package privatekey

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
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
// be bounded. Where the name of a member is a private key, the path has only the names above it.
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
		for name, v := range n {
			if inText(name) {
				return " (the name of a member)", true
			}
			below, has := "", isJWK && slices.Contains(Members(), name)
			if !has {
				below, has = find(v)
			}
			if path := "." + name + below; has && (!found || path < where) { // the same one in each call
				where, found = path, true
			}
		}
	}
	return where, found
}

func inText(s string) bool {
	return HasLabel([]byte(s)) || looksLikeJWK(s) || isEncoded(withoutHost(s))
}

// withoutHost returns the path of a URL: what refuses an issuer URL quotes it.
func withoutHost(s string) string {
	if _, rest, isURL := strings.Cut(s, "://"); isURL {
		_, s, _ = strings.Cut(rest, "/")
	}
	return s
}

var (
	ktyMember     = regexp.MustCompile(`\bkty\b\\*["']?\s*:`)
	privateMember = regexp.MustCompile(`(?:^|[\s{,"'])(?:d|p|q|dp|dq|qi|k|priv)\\*["']?\s*:\s*\\*["']?[0-9A-Za-z_-]{8}`)
)

// looksLikeJWK recognises a private JWK in the notation of JSON or YAML within other text, also with escaped quotes.
func looksLikeJWK(s string) bool {
	return strings.Contains(s, "kty") && ktyMember.MatchString(s) && privateMember.MatchString(s)
}

// isEncoded reports whether s is the base64 of a private key: a PEM file without its first and last line, or a whole one.
func isEncoded(s string) bool {
	if !strings.HasPrefix(s, "M") && !strings.HasPrefix(s, "LS0t") { // DER begins with 0x30, and PEM with hyphens
		return false
	}
	digits := strings.TrimRight(strings.NewReplacer("-", "+", "_", "/", " ", "", "\n", "").Replace(s), "=")
	data, err := base64.RawStdEncoding.DecodeString(digits)
	return err == nil && (IsDER(data) || HasLabel(data))
}

// IsDER reports whether der has the form of a private key in PKCS#8, PKCS#1 or SEC 1, on any curve.
func IsDER(der []byte) bool {
	if len(der) == 0 || der[0] != 0x30 { // no sequence, as most of what is no DER: finding out below takes longer
		return false
	}
	var members []asn1.RawValue
	if _, err := asn1.Unmarshal(der, &members); err != nil || len(members) < 2 {
		return false
	}
	is := func(i, tag int) bool {
		return i < len(members) && members[i].Class == asn1.ClassUniversal && members[i].Tag == tag
	}
	version := members[0].Bytes
	if !is(0, asn1.TagInteger) || len(version) != 1 || version[0] > 1 {
		return false
	}
	return is(1, asn1.TagOctetString) || is(1, asn1.TagSequence) && is(2, asn1.TagOctetString) || len(members) >= 9 && is(1, asn1.TagInteger) && is(8, asn1.TagInteger)
}
