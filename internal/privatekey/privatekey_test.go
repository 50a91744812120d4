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
	"testing"
)

func ders(t *testing.T) (private, public map[string][]byte) {
	t.Helper()
	must := func(der []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
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

// Package keystore's tests have many more forms and places.
func TestForms(t *testing.T) {
	private, public := ders(t)
	for name, der := range private {
		text := base64.StdEncoding.EncodeToString(der)
		if where, found := Find(map[string]any{"a": []any{"x", text}}); !IsDER(der) || !found || where != "a[1]" {
			t.Errorf("%s: %t, found %t at %q", name, IsDER(der), found, where)
		}
		if !InComments([]byte("a: 1 # old\n# "+text+"\n")) || InComments([]byte("a: "+text+"\n")) {
			t.Errorf("%s in a comment", name)
		}
		for _, prefix := range []string{"# ", "# | ", "# * ", "# # ", "# > > ", "#\t- ", "\n# "} { // the last has blank lines between
			wrapped := "a: 1\n"
			for part := range slices.Chunk([]byte(text), 60) {
				wrapped += prefix + string(part) + "\n"
			}
			if !InComments([]byte(wrapped + "b: 2\n")) {
				t.Errorf("%s, wrapped behind %q", name, prefix)
			}
		}
		if !HasLabel(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})) {
			t.Errorf("%s: no label", name)
		}
	}
	for name, der := range public {
		if InComments([]byte("# > " + base64.StdEncoding.EncodeToString(der) + "\n")) {
			t.Errorf("%s in a comment passes for a private key", name)
		}
		if _, found := Find([]any{base64.StdEncoding.EncodeToString(der)}); IsDER(der) || found || HasLabel(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})) {
			t.Errorf("%s passes for a private key", name)
		}
	}
	for _, m := range Members() {
		if where, found := Find(map[string]any{"keys": []any{map[string]any{"kty": "EC", m: "x"}}}); !found || where != "keys[0]."+m {
			t.Errorf("member %s: found %t at %q", m, found, where)
		}
	}
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
