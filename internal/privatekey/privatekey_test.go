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

func TestJWKWithoutItsType(t *testing.T) {
	const secret = "Zm9vYmFyYmF6cXV4Zm9vYg"
	for tree, want := range map[*map[string]any]bool{
		{"alg": "HS256", "k": secret}:                    true,
		{"use": "sig", "d": secret}:                      true,
		{"key_ops": []any{"sign"}, "d": secret + secret}: true,
		{"alg": "RS256", "use": "x", "k": "v1"}:          false, // labels
		{"d": secret}:                                    false,
	} {
		if where, found := Find(*tree); found != want {
			t.Errorf("%v: found %t at %q", *tree, found, where)
		}
	}
}

// A public key in PEM is passed over, and nothing that stands before, in or behind it is.
func TestBesideAPublicKey(t *testing.T) {
	private, public := ders(t)
	good := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public["PKIX, RSA"]}))
	if !isPublicPEM(good) || !isPublicPEM(strings.TrimSpace(good)) {
		t.Error("a public key is searched")
	}
	for name, der := range private {
		text := base64.StdEncoding.EncodeToString(der)
		lines := strings.TrimSuffix(strings.TrimPrefix(string(pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: der})), "-----BEGIN X-----\n"), "-----END X-----\n")
		for where, s := range map[string]string{
			"behind":            good + text,
			"behind, wrapped":   good + lines,
			"on the last line":  strings.TrimSpace(good) + " " + text,
			"before":            text + "\n" + good,
			"in a header":       strings.Replace(good, "-----\n", "-----\nX: "+text+"\n\n", 1),
			"in a block before": "-----BEGIN PUBLIC KEY-----\n" + lines + good,
			"between two":       good + lines + good,
			"as the block":      "-----BEGIN PUBLIC KEY-----\n" + lines + "-----END PUBLIC KEY-----\n",
			"in base64":         base64.StdEncoding.EncodeToString([]byte(good + text)),
		} {
			if _, found := Find(map[string]any{"publicKey": s}); !found {
				t.Errorf("%s %s the PEM of a public key is not found", name, where)
			}
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
