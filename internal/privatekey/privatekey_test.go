package privatekey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"regexp"
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
		if !isMember(m) {
			t.Errorf("%s is no member", m)
		}
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

// The label of a public key does not make the bytes below it one.
func TestBelowTheLabelOfAPublicKey(t *testing.T) {
	private, _ := ders(t)
	publicPEM := func(der []byte) string { return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})) }
	around := func(body string) string {
		return "-----BEGIN PUBLIC KEY-----\n" + body + "\n-----END PUBLIC KEY-----\n"
	}
	junk := bytes.Repeat([]byte{0xff}, 48)
	cases := map[string]string{
		"Ed25519 as the second line": publicPEM(slices.Concat(junk, private["PKCS#8, Ed25519"])),
		"Ed25519 between lines":      publicPEM(slices.Concat(junk, private["PKCS#8, Ed25519"], junk)),
		"a label":                    publicPEM(slices.Concat(junk, []byte("-----BEGIN PRIVATE KEY-----"), junk)),
		"a JWK in a line":            publicPEM(slices.Concat(junk, []byte(`{"kty":"OKP","crv":"Ed25519","d":"secret-secret"}`)[:48])),
	}
	for name, der := range private {
		digits := hex.EncodeToString(der)
		cases[name+", hex"] = around(digits)
		cases[name+", hex, upper case"] = around(strings.ToUpper(digits))
		cases[name+", hex in lines"] = around(wrap(digits, "\n"))
		if len(digits)%4 == 0 { // else it is not canonical, as it is above
			cases[name+", hex, canonical"] = publicPEM(must(base64.StdEncoding.DecodeString(digits)))
		}
	}
	for name, s := range cases {
		if _, found := Find(map[string]any{"publicKey": s}); !found {
			t.Errorf("%s: not found", name)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func wrap(s, between string) string {
	var lines []string
	for line := range slices.Chunk([]byte(s), 64) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, between)
}

func TestNotations(t *testing.T) {
	private, public := ders(t)
	colons := func(s string) string {
		return strings.TrimSuffix(regexp.MustCompile("..").ReplaceAllString(s, "$0:"), ":")
	}
	list := func(s string) (all []any) {
		for line := range strings.Lines(wrap(s, "\n")) {
			all = append(all, strings.TrimSpace(line))
		}
		return all
	}
	notations := func(der []byte) map[string]any {
		text, digits := base64.StdEncoding.EncodeToString(der), hex.EncodeToString(der)
		return map[string]any{
			`wrapped with \n`: wrap(text, `\n`), `wrapped with \r\n, quoted`: `"` + wrap(text, `\r\n`) + `"`, `wrapped with \\n`: wrap(text, `\\n`),
			"wrapped with commas": wrap(text, ", "), "lines in quotes": `["` + wrap(text, "\",\n\"") + `"]`, "a shell's lines": wrap(text, "\\\n"),
			"a list": list(text), "a list of hex": list(digits),
			"hex with colons": colons(digits), "hex with colons in lines": wrap(colons(digits), "\n"), "0x": "0x" + digits,
		}
	}
	for name, der := range private {
		for notation, v := range notations(der) {
			if where, found := Find(map[string]any{"a": v}); !found || !strings.HasPrefix(where, "a") {
				t.Errorf("%s, %s: found %t at %q", name, notation, found, where)
			}
		}
	}
	for name, der := range public {
		for notation, v := range notations(der) {
			if _, found := Find(map[string]any{"a": v}); found {
				t.Errorf("%s, %s: passes for a private key", name, notation)
			}
		}
	}
}

func TestJWKInBase64(t *testing.T) {
	const public = `{"kty":"EC","crv":"P-256","x":"c2VjcmV0c2VjcmV0c2VjcmV0","y":"c2VjcmV0c2VjcmV0c2VjcmV0"`
	const private = public + `,"d":"c2VjcmV0c2VjcmV0c2VjcmV0"`
	for jwk, want := range map[string]bool{private + "}": true, public + "}": false, `{"keys":[` + private + "}]}": true} {
		once := base64.StdEncoding.EncodeToString([]byte(jwk))
		for name, s := range map[string]string{
			"base64": once, "base64url": base64.RawURLEncoding.EncodeToString([]byte(jwk)), "in lines": wrap(once, "\n"),
			"twice": base64.StdEncoding.EncodeToString([]byte(once)), "in text": "jwk: " + once, "escaped": "x" + strings.ReplaceAll(jwk, `"`, `\"`),
		} {
			if _, found := Find(map[string]any{"data": map[string]any{"jwk.json": s}}); found != want {
				t.Errorf("%s, %s: found %t", jwk, name, found)
			}
		}
	}
}

// Only what the search would not find is passed over.
func FuzzPublicPEM(f *testing.F) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	private := must(x509.MarshalPKCS8PrivateKey(edKey))
	f.Add(must(x509.MarshalPKIXPublicKey(edKey.Public())))
	f.Add(private)
	f.Add(slices.Concat(bytes.Repeat([]byte{0xff}, 48), private))
	f.Add(must(base64.StdEncoding.DecodeString(hex.EncodeToString(private))))
	f.Add(slices.Concat(bytes.Repeat([]byte{0xff}, 48), []byte(`{"kty":"oct","k":"0123456789abcdef0123456789abc"}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: data}))
		if isPublicPEM(s) && (HasLabel([]byte(s)) || looksLikeJWK(s) || hasSecretRun(s, 2)) {
			t.Errorf("%q is passed over", s)
		}
	})
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
