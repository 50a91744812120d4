// Package privatekey finds private key material in text, in any of its usual forms. A private key in a public document is
// compromised, and its owner has to know.
//
// Certificates, public keys and text about keys are not reported. An object with a member kid, kty, crv or x5c beside one
// of the private members of a JWK is, and one with alg, use or key_ops if that member is long enough for a secret.
//
// The package is meant for accidents: it does not find a key that somebody hides by compression, encryption, other encodings
// (more than two layers of base64, percent signs, bytes as decimal or 0x30 numbers), in pieces (in several members, as
// pairs of a name and a value), or behind other bytes in one base64 text, such as a public key.
package privatekey

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/keypost/keypost/internal/strictyaml"
)

// ErrFound is wrapped by the refusal of input that holds a private key.
var ErrFound = errors.New("it is a private key")

// Members returns the JWK members of RFC 7518, sections 6.2.2, 6.3.2 and 6.4 that only a secret key has.
func Members() []string { return []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} }

// isMember reports whether Members has name, without a list of them for each name of a document.
func isMember(name string) bool {
	switch name {
	case "d", "p", "q", "dp", "dq", "qi", "oth", "k":
		return true
	}
	return false
}

// privateLabels are in every text form of a private key: PEM, OpenPGP, SSH.COM, PuTTY.
var privateLabels = [][]byte{
	[]byte("PRIVATE KEY-----"), []byte("PRIVATE KEY BLOCK-----"), []byte("PRIVATE KEY ----"), []byte("PuTTY-User-Key-File-"),
}

// HasLabel reports whether data has the label of a private key in one of its text forms.
func HasLabel(data []byte) bool {
	return slices.ContainsFunc(privateLabels, func(label []byte) bool { return bytes.Contains(data, label) })
}

// Find returns the path of the first private key in a tree of JSON values (map[string]any, []any, string). It looks for
// private members of objects that look like a JWK, for labels, and for base64 and hexadecimal digits of either and of DER,
// also in strings that are JSON or look like a JWK in YAML, and in lists of such digits. Its work is linear in the size of the tree, whose depth must
// be bounded.
func Find(tree any) (where string, found bool) {
	if !new(search).in(tree, maxNestedJSON) {
		return "", false
	}
	s := search{inOrder: true} // which of several it names must not change from one call to the next
	s.in(tree, maxNestedJSON)
	var path strings.Builder
	for _, name := range slices.Backward(s.path) {
		if !strings.HasPrefix(name, "[") && path.Len() > 0 {
			path.WriteByte('.')
		}
		path.WriteString(name)
	}
	return path.String(), true
}

// maxNestedJSON is how often a string may be JSON with a string that is JSON.
const maxNestedJSON = 3

// search looks for a secret. It notes the path only once it has found one, on the way back: a path at every step would
// take memory with the square of the depth.
type search struct {
	inOrder bool
	path    []string // innermost first
}

func (s *search) in(node any, nested int) bool {
	switch n := node.(type) {
	case map[string]any:
		return s.inObject(n, nested)
	case []any:
		for i, v := range n {
			if s.in(v, nested) {
				s.path = append(s.path, fmt.Sprintf("[%d]", i))
				return true
			}
		}
		return hasSecretRun(joinLines(n), 2)
	case string:
		return inText(n, nested)
	}
	return false
}

// joinLines returns the texts of a list that have only digits of base64, a line each: a list may be a wrapped key.
func joinLines(list []any) string {
	var lines strings.Builder
	for _, v := range list {
		if line, _ := v.(string); line != "" && base64Prefix(line) == len(strings.TrimRight(line, "=")) {
			lines.WriteString(line)
			lines.WriteByte('\n')
		}
	}
	return lines.String()
}

func (s *search) inObject(object map[string]any, nested int) bool {
	has := func(member string) bool { _, has := object[member]; return has }
	isJWK := slices.ContainsFunc([]string{"kid", "kty", "crv", "x5c"}, has)
	mayBeJWK := slices.ContainsFunc([]string{"alg", "use", "key_ops"}, has) // words that labels of other things have too
	names := maps.Keys(object)
	if s.inOrder {
		names = slices.Values(slices.Sorted(names))
	}
	for name := range names {
		if isMember(name) && (isJWK || mayBeJWK && isSecretDigits(object[name])) || inText(name, 0) || s.in(object[name], nested) {
			s.path = append(s.path, name)
			return true
		}
	}
	return false
}

// isSecretDigits reports whether a value may be a member of a private JWK by itself: 128 bits or more in base64url.
func isSecretDigits(value any) bool {
	s, _ := value.(string)
	const least = 22
	return len(s) >= least && base64Prefix(s) == len(s)
}

func inText(s string, nested int) bool {
	if isPublicPEM(s) {
		return false
	}
	if HasLabel([]byte(s)) || looksLikeJWK(s) {
		return true
	}
	if nested > 0 && isJSON(s) {
		var tree any
		if strictyaml.CheckDepth([]byte(s)) != nil {
			return true // such a text is only written to evade the search
		}
		if json.Unmarshal([]byte(s), &tree) == nil && new(search).in(tree, nested-1) {
			return true
		}
	}
	return hasSecretRun(s, 2)
}

// isPublicPEM reports whether s is one PEM block with the label of a public key, as every key in a document is, in which the
// search below would find nothing. It only saves time: to search such a block for base64 takes about as long as all else
// that is done to a document (BenchmarkParse in keystore).
//
// The block must be exactly what pem.Encode makes of its bytes. The only runs in it that are long enough for a secret are
// then its full lines and all lines together, and none of them may be text, hexadecimal digits or the DER of a private key.
func isPublicPEM(s string) bool {
	const begin, end = "-----BEGIN PUBLIC KEY-----\n", "\n-----END PUBLIC KEY-----"
	body, hasBegin := strings.CutPrefix(s, begin)
	body, hasEnd := strings.CutSuffix(strings.TrimSuffix(body, "\n"), end)
	if !hasBegin || !hasEnd {
		return false
	}
	const full = leastSecret / 4 * 3 // bytes of a line, all of which but the last are full
	var line [full]byte
	der := make([]byte, 0, len(body)/4*3)
	for len(body) > 0 {
		digits, rest, more := strings.Cut(body, "\n")
		if more != (rest != "") || len(digits) > leastSecret || len(digits)%4 != 0 || strings.Contains(digits, "\r") { // the decoder skips CR
			return false
		}
		n, err := base64.StdEncoding.Strict().Decode(line[:], []byte(digits))
		switch {
		case err != nil || n < full && more || IsDER(line[:n]):
			return false
		case n == full && (utf8.Valid(line[:]) || isHex(digits)):
			return false
		}
		der, body = append(der, line[:n]...), rest
	}
	return !IsDER(der) && !HasLabel(der) && !utf8.Valid(der)
}

func isHex(s string) bool { return strings.TrimLeft(s, "0123456789ABCDEFabcdef") == "" }

func isJSON(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return (strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[")) && json.Valid([]byte(s))
}

var (
	ktyMember     = regexp.MustCompile(`\bkty\b\\*["']?\s*:`)
	privateMember = regexp.MustCompile(`(?:^|[\s{,"'])(?:d|p|q|dp|dq|qi|k)\\*["']?\s*:\s*\\*["']?[0-9A-Za-z_-]{8}`)
)

// looksLikeJWK recognises a private JWK in the notation of JSON or YAML within other text, also with escaped quotes.
func looksLikeJWK(s string) bool {
	return strings.Contains(s, "kty") && ktyMember.MatchString(s) && privateMember.MatchString(s)
}

// hasSecretRun reports whether s has a private key in base64 or hexadecimal digits, or in base64 of that.
func hasSecretRun(s string, layers int) bool {
	if len(s) < leastSecret {
		return false
	}
	return slices.ContainsFunc(base64Runs(s), func(run string) bool {
		for _, decode := range []func(string) ([]byte, error){base64.RawStdEncoding.DecodeString, decodeHex} {
			data, err := decode(run)
			if err == nil && (HasLabel(data) || IsDER(data) || utf8.Valid(data) && (looksLikeJWK(string(data)) || layers > 1 && hasSecretRun(string(data), layers-1))) {
				return true
			}
		}
		return false
	})
}

func decodeHex(digits string) ([]byte, error) {
	return hex.DecodeString(strings.TrimPrefix(digits, "0x"))
}

// InComments reports whether the comments of a YAML text hold a private key. Comments with nothing but blank lines
// between them are one text, since a key is wrapped, and may stand behind bullets or quotation marks ("# > MIIE…").
func InComments(data []byte) bool {
	if bytes.IndexByte(data, '#') < 0 {
		return false
	}
	var text, bare strings.Builder // bare: without what stands before the first digit of base64 on each line
	found := func() bool {
		defer text.Reset()
		defer bare.Reset()
		return inText(text.String(), maxNestedJSON) || hasSecretRun(bare.String(), 2)
	}
	for line := range bytes.Lines(data) {
		_, comment, has := bytes.Cut(line, []byte("#"))
		switch {
		case has:
			c := strings.TrimLeft(string(comment), "#")
			text.WriteString(c)
			bare.WriteString(strings.TrimLeftFunc(c, func(r rune) bool { return !letterOrDigit(r) && r != '+' && r != '/' }))
		case len(bytes.TrimSpace(line)) > 0 && text.Len() > 0 && found():
			return true
		}
	}
	return found()
}

func letterOrDigit(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// leastSecret is the length of the base64 of the smallest private key, one for Ed25519 in PKCS#8.
const leastSecret = 64

// base64Runs returns the parts of s that may be base64 of a key, in the standard alphabet and without padding: words,
// lines that have nothing else, and everything without its white space, also without what may stand between the lines.
func base64Runs(s string) []string {
	runs := base64Words(nil, s)
	var block []byte
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		bare := strings.TrimRight(line, "=")
		whole := base64Prefix(bare) == len(bare)
		if whole {
			block = append(block, bare...)
		}
		if len(block) > 0 && (bare != line || !whole) {
			runs = append(runs, standard(string(block)))
			block = block[:0]
		}
	}
	runs = append(runs, standard(string(block)))
	if strings.ContainsAny(s, whiteSpace) {
		runs = base64Words(runs, without(s, whiteSpace))
	}
	if strings.ContainsAny(s, separators) {
		unescaped := strings.ReplaceAll(strings.ReplaceAll(s, `\r`, ""), `\n`, "")
		runs = base64Words(runs, without(unescaped, whiteSpace+separators))
	}
	return slices.DeleteFunc(runs, func(run string) bool { return len(run) < leastSecret })
}

// separators are what a program or a person puts between the lines of a list, and between bytes in hexadecimal digits.
const (
	whiteSpace = " \n\r\t"
	separators = `,"':\`
)

func without(s, characters string) string {
	rest := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; strings.IndexByte(characters, c) < 0 {
			rest = append(rest, c)
		}
	}
	return string(rest)
}

// base64Words appends the words of s that are long enough to be a secret.
func base64Words(runs []string, s string) []string {
	for len(s) > 0 {
		n := base64Prefix(s)
		if n >= leastSecret {
			runs = append(runs, standard(s[:n]))
		}
		s = s[min(n+1, len(s)):]
	}
	return runs
}

// base64Prefix returns how many bytes at the start of s are digits of base64, in either alphabet.
func base64Prefix(s string) int {
	for i := range len(s) {
		if !base64Digit[s[i]] {
			return i
		}
	}
	return len(s)
}

// base64Digit is a table since every byte of every document is looked up in it.
var base64Digit = func() (is [256]bool) { //nolint:gochecknoglobals // a constant table
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		is[c] = true
	}
	return is
}()

// standard returns base64 in the standard alphabet.
func standard(digits string) string {
	if !strings.ContainsAny(digits, "-_") {
		return digits
	}
	return strings.ReplaceAll(strings.ReplaceAll(digits, "-", "+"), "_", "/")
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
