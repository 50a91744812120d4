package privatekey

import (
	"slices"
	"strings"
	"testing"
)

// Package keystore's tests have every place of a document.
func TestLabels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"-----BEGIN PRIVATE KEY-----\nx\n": true, "-----BEGIN EC PRIVATE KEY-----": true, "-----BEGIN OPENSSH PRIVATE KEY-----": true,
		"-----BEGIN PGP PRIVATE KEY BLOCK-----": true, "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----": true, "PuTTY-User-Key-File-3: ssh-rsa": true,
		"-----BEGIN PUBLIC KEY-----": false, "-----BEGIN CERTIFICATE-----": false, "the private key of the old cluster": false,
	} {
		if where, found := Find(map[string]any{"a": []any{"x", text}}); found != want || HasLabel([]byte(text)) != want || found && where != "a[1]" {
			t.Errorf("%q: found %t at %q", text, found, where)
		}
	}
}

// Every parameter of the IANA registry "JSON Web Key Parameters" (https://www.iana.org/assignments/jose), by its class. A
// name stands twice there if key types use it differently.
func TestMembersAreThoseOfTheRegistry(t *testing.T) {
	t.Parallel()
	const registry = `kty Public, use Public, key_ops Public, alg Public, kid Public, x5u Public, x5c Public, x5t Public, x5t#S256 Public,
		crv Public, x Public, y Public, d Private, n Public, e Public, d Private, p Private, q Private, dp Private, dq Private,
		qi Private, oth Private, k Private, crv Public, d Private, x Public, ext Public, iat Public, nbf Public, exp Public,
		revoked Public, pub Public, priv Private`
	for entry := range strings.SplitSeq(registry, ",") {
		name, class, _ := strings.Cut(strings.TrimSpace(entry), " ")
		if got, want := slices.Contains(Members(), name), class == "Private"; got != want {
			t.Errorf("%s: private %t, want %t", name, got, want)
		}
		where, found := Find(map[string]any{"keys": []any{map[string]any{"kty": "x", name: "secret-secret"}}})
		if want := class == "Private"; found != want || found && where != "keys[0]."+name {
			t.Errorf("%s in a JWK: found %t at %q", name, found, where)
		}
		for how, text := range map[string]string{
			"JSON": `{"kty":"x","` + name + `":"secret-secret"}`, "escaped": `{\"kty\":\"x\",\"` + name + `\":\"secret-secret\"}`,
			"YAML": "kty: x\n" + name + ": secret-secret\n",
		} {
			if _, found := Find([]any{text}); found != (class == "Private") && name != "oth" { // a list, of a key that has d too
				t.Errorf("%s in a JWK as text (%s): found %t", name, how, found)
			}
		}
	}
	for _, tree := range []map[string]any{{"d": "secret-secret"}, {"alg": "RS256", "use": "x", "k": "v1"}} { // labels of other things
		if where, found := Find(tree); found {
			t.Errorf("%v: found at %q", tree, where)
		}
	}
}

// The path never has a name that is a private key, and it is the same in each call.
func TestPathsHaveNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "-----BEGIN PRIVATE KEY-----"
	for want, tree := range map[string]any{
		"(the name of a member)":      map[string]any{secret: 1, "a": 1},
		"a.b (the name of a member)":  map[string]any{"a": map[string]any{"b": map[string]any{secret: map[string]any{"c": secret}}}},
		"a[0] (the name of a member)": map[string]any{"a": []any{map[string]any{secret: nil}}, "b": secret},
		"a.d":                         map[string]any{"b": secret, "c": secret, "a": map[string]any{"kid": "x", "e": secret, "d": 1}},
	} {
		for range 20 {
			if where, found := Find(tree); !found || where != want {
				t.Fatalf("found %t at %q, want %q", found, where, want)
			}
		}
	}
}
