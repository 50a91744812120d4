package keystore

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// privateMembers are the JWK members of RFC 7518, sections 6.2.2, 6.3.2 and 6.4 that only a secret key has.
var privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"}

// privateLabels are in every text form of a private key: PEM, OpenPGP, SSH.COM, PuTTY.
var privateLabels = [][]byte{
	[]byte("PRIVATE KEY-----"), []byte("PRIVATE KEY BLOCK-----"), []byte("PRIVATE KEY ----"), []byte("PuTTY-User-Key-File-"),
}

func hasPrivateLabel(data []byte) bool {
	return slices.ContainsFunc(privateLabels, func(label []byte) bool { return bytes.Contains(data, label) })
}

// decodeJSON reads JSON as whoever takes security seriously does: names of members count in their case, and one that
// is there twice is an error. Else two readers of one text may see two different keys in it (RFC 8725, section 2.4).
func decodeJSON(data []byte, v any) error {
	again, err := kjson.UnmarshalStrict(data, v, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	if len(again) > 0 {
		return again[0]
	}
	return nil
}

// findSecret reports where in a document private key material stands, whatever member it is in: a secret that is in a
// store is no secret any more, and whoever put it there has to know. It looks for private members of objects that look
// like a JWK, for labels of private keys, and for base64 of either and of DER, also in strings that are JSON
// themselves. Its work is linear in the size of the document.
//
// It refuses no text that just speaks of keys, and no certificate or public key. An object that is no key but has a
// member kid, kty, crv or x5c beside one of the private names would be refused too.
func findSecret(document []byte) error {
	var tree any
	if err := json.Unmarshal(document, &tree); err != nil {
		return errors.New("it is not valid JSON")
	}
	if where := secretIn(tree, "", maxNestedJSON); where != "" {
		return fmt.Errorf("%s: %w; remove it, and treat that key as stolen", printable(where), ErrPrivateKey)
	}
	return nil
}

// maxNestedJSON is how often a string may be JSON with a string that is JSON.
const maxNestedJSON = 3

// secretIn returns the path of the first secret below node, empty when there is none.
func secretIn(node any, path string, nested int) string {
	switch n := node.(type) {
	case map[string]any:
		return secretInObject(n, path, nested)
	case []any:
		for i, v := range n {
			if where := secretIn(v, fmt.Sprintf("%s[%d]", path, i), nested); where != "" {
				return where
			}
		}
	case string:
		if isSecretText(n, nested) {
			return path
		}
	}
	return ""
}

func secretInObject(object map[string]any, path string, nested int) string {
	looksLikeKey := slices.ContainsFunc([]string{"kid", "kty", "crv", "x5c"}, func(m string) bool { _, has := object[m]; return has })
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		if looksLikeKey && slices.Contains(privateMembers, name) || isSecretText(name, 0) {
			return at
		}
		if where := secretIn(object[name], at, nested); where != "" {
			return where
		}
	}
	return ""
}

func isSecretText(s string, nested int) bool {
	if hasPrivateLabel([]byte(s)) {
		return true
	}
	if nested > 0 && strings.Contains(s, "kty") {
		var tree any
		if json.Unmarshal([]byte(s), &tree) == nil && secretIn(tree, "", nested-1) != "" {
			return true
		}
	}
	for _, run := range base64Runs(s) {
		if data, err := base64.RawStdEncoding.DecodeString(run); err == nil && (hasPrivateLabel(data) || looksPrivate(data)) {
			return true
		}
	}
	return false
}

// leastSecret is the length of the base64 of the smallest private key, one for Ed25519 in PKCS#8.
const leastSecret = 64

// base64Runs returns the parts of s that may be base64 of a key, whatever white space is in them, in the standard
// alphabet and without padding.
func base64Runs(s string) []string {
	if len(s) < leastSecret {
		return nil
	}
	s = strings.NewReplacer(" ", "", "\n", "", "\r", "", "\t", "", "-", "+", "_", "/").Replace(s)
	runs := strings.FieldsFunc(s, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '+' && r != '/'
	})
	return slices.DeleteFunc(runs, func(run string) bool { return len(run) < leastSecret })
}

// looksPrivate recognises the DER of PKCS#8, PKCS#1 and SEC 1 private keys by their form, on any curve.
func looksPrivate(der []byte) bool {
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
