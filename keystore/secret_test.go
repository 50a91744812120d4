package keystore

import (
	"crypto/elliptic"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/keypost/keypost/internal/privatekey"
)

// secrets are private keys in the forms that are not PEM.
func secrets() map[string]string {
	return map[string]string{
		"a JWK":         `{"kty":"EC","crv":"P-256","d":"c2VjcmV0"}`,
		"a JWKS":        `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`,
		"a JWK in JSON": `{"note":"{\"kty\":\"EC\",\"d\":\"c2VjcmV0\"}"}`,
		"OpenPGP":       "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQ==\n",
		"SSH.COM":       "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
		"PuTTY":         "PuTTY-User-Key-File-3: ssh-rsa",
	}
}

// everyPlace puts a text into d at each place in turn, as a value and as the name of a member, and calls use.
func everyPlace(d map[string]any, text string, use func(where string)) {
	var walk func(node any, where string)
	walk = func(node any, where string) {
		switch n := node.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(n)) {
				was, at := n[name], where+"."+name
				n[name] = text
				use(at)
				n[name] = was
				walk(was, at)
			}
			n[text] = 1
			use("a name in " + where)
			delete(n, text)
		case []any:
			for i, v := range n {
				n[i] = text
				use(fmt.Sprintf("%s[%d]", where, i))
				n[i] = v
				walk(v, fmt.Sprintf("%s[%d]", where, i))
			}
		}
	}
	walk(d, "")
}

func TestPrivateMaterialAnywhereIsRefused(t *testing.T) {
	t.Parallel()
	full := tree(t, fullSet(t))
	forms, every := secrets(), int(many(1, 4)) // by default each place is tried with some of the forms
	for n, form := range slices.Sorted(maps.Keys(forms)) {
		secret, tried := forms[form], n
		everyPlace(full, secret, func(where string) {
			if tried++; tried%every != 0 {
				return
			}
			_, err := parseTree(full)
			tooLong := strings.HasPrefix(where, "a name") && len(secret) > 1000 // for a name in YAML
			if !errors.Is(err, ErrPrivateKey) && (err == nil || !tooLong) {
				t.Errorf("%s at %s: error %v", form, where, err)
				return
			}
			const run = 16 // characters; "a JWK" and the labels have shorter secrets
			for i := 0; i+run <= len(secret); i++ {
				if strings.Contains(err.Error(), secret[i:i+run]) {
					t.Errorf("%s at %s: the error quotes it: %v", form, where, err)
					return
				}
			}
		})
		if tried < 100 {
			t.Errorf("only %d places", tried)
		}
	}
	for _, member := range privatekey.Members() {
		for where, put := range map[string]func(spec map[string]any){
			"a key":          func(spec map[string]any) { spec["keys"].([]any)[0].(map[string]any)[member] = "c2VjcmV0" }, //nolint:forcetypeassert // the test wrote it
			"a nested JWK":   func(spec map[string]any) { spec["jwk"] = map[string]any{"kty": "RSA", member: 1} },
			"JWKs in a list": func(spec map[string]any) { spec["x"] = []any{[]any{map[string]any{"crv": "P-256", member: nil}}} },
			"a line in gone": func(spec map[string]any) {
				spec["gone"] = []any{map[string]any{"kid": "x", "at": t0, "why": Removed, member: "x"}}
			},
		} {
			d := tree(t, newSet(t, Policy{}))
			put(specOf(d))
			if _, err := parseTree(d); !errors.Is(err, ErrPrivateKey) || !strings.Contains(err.Error(), "spec.") {
				t.Errorf("%q in %s: error %v", member, where, err)
			}
		}
	}
}

// What is public, or only looks like a secret at first, is let through.
func TestPublicMaterialIsNoSecret(t *testing.T) {
	ec := ecPrivate(elliptic.P256(), 3)
	public := base64.StdEncoding.EncodeToString(spki(rsaPrivate().Public()))
	for name, text := range map[string]string{
		"a public key":              public,
		"a certificate":             base64.StdEncoding.EncodeToString(certificate(ec)),
		"a public key, PEM":         pemOf("PUBLIC KEY", spki(ec.Public())),
		"a public key, PEM, base64": base64.StdEncoding.EncodeToString([]byte(pemOf("PUBLIC KEY", spki(ec.Public())))),
		"a public JWK":              string(must((&jose.JSONWebKey{Key: ec.Public()}).MarshalJSON())),
		"words":                     strings.Repeat("the private key of the old cluster was lost with the laptop ", 20),
		"a hash":                    strings.Repeat("0123456789abcdef", 8),
		"an object":                 `{"d": 1, "k": "v"}`,
	} {
		d := tree(t, newSet(t, Policy{}))
		specOf(d)["fromTheFuture"] = text
		if _, err := parseTree(d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := tree(t, newSet(t, Policy{}))
	specOf(d)["selector"] = map[string]any{"k": "team", "d": "x"}
	if _, err := parseTree(d); err != nil {
		t.Errorf("members of an object that is not a key: %v", err)
	}
}
