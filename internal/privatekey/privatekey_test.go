package privatekey

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
)

func ders(t *testing.T) (private, public map[string][]byte) {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
			"PKCS#1": x509.MarshalPKCS1PrivateKey(r), "SEC 1": must(x509.MarshalECPrivateKey(e)), "PKCS#8, RSA": must(x509.MarshalPKCS8PrivateKey(r)),
			"PKCS#8, EC": must(x509.MarshalPKCS8PrivateKey(e)), "PKCS#8, Ed25519": must(x509.MarshalPKCS8PrivateKey(d)),
		}, map[string][]byte{
			"PKCS#1": x509.MarshalPKCS1PublicKey(&r.PublicKey), "PKIX, RSA": must(x509.MarshalPKIXPublicKey(r.Public())),
			"PKIX, EC": must(x509.MarshalPKIXPublicKey(e.Public())), "PKIX, Ed25519": must(x509.MarshalPKIXPublicKey(d.Public())),
		}
}

// Package keystore's tests have more forms, and every place of a document.
func TestForms(t *testing.T) {
	t.Parallel()
	private, public := ders(t)
	forms := func(der []byte) map[string]string {
		text := base64.StdEncoding.EncodeToString(der)
		var lines []string
		for line := range slices.Chunk([]byte(text), 64) {
			lines = append(lines, string(line))
		}
		return map[string]string{
			"base64": text, "base64url": base64.RawURLEncoding.EncodeToString(der),
			"in lines": strings.Join(lines, "\r\n") + "\n", "in words": strings.Join(lines, " "), "path of a URL": "https://oidc.example.com/" + text,
		}
	}
	for name, der := range private {
		if !IsDER(der) || !HasLabel(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})) {
			t.Errorf("%s: its DER or its label is not recognised", name)
		}
		for form, text := range forms(der) {
			if where, found := Find(map[string]any{"a": []any{"x", text}}); !found || where != "a[1]" {
				t.Errorf("%s, %s: found %t at %q", name, form, found, where)
			}
		}
	}
	for name, der := range public {
		if IsDER(der) || HasLabel(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})) {
			t.Errorf("%s passes for a private key", name)
		}
		for form, text := range forms(der) {
			if _, found := Find([]any{text}); found {
				t.Errorf("%s, %s: passes for a private key", name, form)
			}
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
	private, _ := ders(t)
	secret := base64.StdEncoding.EncodeToString(private["PKCS#8, Ed25519"])
	for want, tree := range map[string]any{
		"(the name of a member)":      map[string]any{secret: 1, "a": secret},
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Whatever the standard library reads as a private key has the form of one.
func FuzzIsDER(f *testing.F) {
	f.Add([]byte("0\x03\x02\x01\x00"))
	f.Fuzz(func(t *testing.T, der []byte) {
		_, pkcs8 := x509.ParsePKCS8PrivateKey(der)
		_, pkcs1 := x509.ParsePKCS1PrivateKey(der)
		_, ec := x509.ParseECPrivateKey(der)
		if (pkcs8 == nil || pkcs1 == nil || ec == nil) && !IsDER(der) {
			t.Errorf("%x is a private key", der)
		}
	})
}
