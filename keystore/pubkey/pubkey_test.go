package pubkey

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/keypost/keypost/internal/privatekey"
	"github.com/keypost/keypost/keystore"
)

// jwkOf is the JSON of a public JWK with some members changed; a nil value takes the member away.
func jwkOf(t testing.TB, key crypto.PublicKey, members map[string]any) string {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal(must((&jose.JSONWebKey{Key: key}).MarshalJSON()), &m); err != nil {
		t.Fatal(err)
	}
	maps.Copy(m, members)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return string(must(json.Marshal(m)))
}

var edPublic = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()

func jwks(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }

func TestParseReads(t *testing.T) {
	rs, ec, ec2 := rsaPublic(2048), ecPrivate(elliptic.P256(), 1), ecPrivate(elliptic.P384(), 2)
	rsID, ecID, ec2ID := must(keystore.NewPublic(rs)).ID(), must(keystore.NewPublic(ec.Public())).ID(), must(keystore.NewPublic(ec2.Public())).ID()
	pkixRSA, pkixEC := pemOf("PUBLIC KEY", spki(rs)), pemOf("PUBLIC KEY", spki(ec.Public()))

	tests := []struct {
		name string
		in   string
		want []keystore.KeyID
	}{
		{"PKIX", pkixRSA, []keystore.KeyID{rsID}},
		{"PKIX under RSA PUBLIC KEY, as OpenShift writes it", pemOf("RSA PUBLIC KEY", spki(rs)), []keystore.KeyID{rsID}},
		{"PKCS#1", pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rs)), []keystore.KeyID{rsID}},
		{"PKCS#1 under PUBLIC KEY", pemOf("PUBLIC KEY", x509.MarshalPKCS1PublicKey(rs)), []keystore.KeyID{rsID}},
		{"certificate", pemOf("CERTIFICATE", certificate(ec)), []keystore.KeyID{ecID}},
		{"several blocks keep their order", pkixEC + pkixRSA + pemOf("CERTIFICATE", certificate(ec2)), []keystore.KeyID{ecID, rsID, ec2ID}},
		{"the same key twice is one", pkixEC + pkixRSA + pemOf("CERTIFICATE", certificate(ec)), []keystore.KeyID{ecID, rsID}},
		{"text around the blocks", "# next key\nsubject=CN=sa\n\n" + pkixEC + "# and the old one\n" + pkixRSA + "\nthe end\n", []keystore.KeyID{ecID, rsID}},
		{"PEM headers", strings.Replace(pkixEC, "KEY-----\n", "KEY-----\nComment: x\n\n", 1), []keystore.KeyID{ecID}},

		{"JWK", jwkOf(t, rs, nil), []keystore.KeyID{rsID}},
		{"JWK with white space around", "\r\n\t " + jwkOf(t, rs, nil) + "\n", []keystore.KeyID{rsID}},
		{"JWK with its computed kid", jwkOf(t, rs, map[string]any{"kid": rsID}), []keystore.KeyID{rsID}},
		{"JWK with its own kid", jwkOf(t, rs, map[string]any{"kid": "2024-01"}), []keystore.KeyID{"2024-01"}},
		{"JWK with x5c", jwkOf(t, ec.Public(), map[string]any{"x5c": []string{base64.StdEncoding.EncodeToString(certificate(ec))}}), []keystore.KeyID{ecID}},
		{"JWKS", jwks(jwkOf(t, rs, map[string]any{"kid": "a"}), jwkOf(t, ec.Public(), nil)), []keystore.KeyID{"a", ecID}},
		{"JWKS with one key twice", jwks(jwkOf(t, rs, nil), jwkOf(t, rs, map[string]any{"kid": rsID})), []keystore.KeyID{rsID}},
		{"JWKS with one key under two kids", jwks(jwkOf(t, rs, nil), jwkOf(t, rs, map[string]any{"kid": "b"})), []keystore.KeyID{rsID, "b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := Parse("k.pem", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var got []keystore.KeyID
			for _, k := range keys {
				if got = append(got, k.ID()); k.Imported() != (k.ID() != must(keystore.NewPublic(k.Key())).ID()) {
					t.Errorf("key %s: imported %t", k.ID(), k.Imported())
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("read %v; want %v", got, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	rs, ec := rsaPublic(2048), ecPrivate(elliptic.P256(), 1)
	good := pemOf("PUBLIC KEY", spki(ec.Public()))
	truncated := good[:len(good)-len("-----END PUBLIC KEY-----\n")]
	badBase64 := strings.Replace(good, "MFkw", "M!kw", 1)
	with := func(name string, v any) string { return jwkOf(t, rs, map[string]any{name: v}) }

	tests := []struct{ name, in, want string }{
		{"nothing", "", "it is empty"},
		{"too much", strings.Repeat("x", MaxSize+1), "it is larger than 1048576 bytes"},
		{"text", "hello", "it holds neither a PEM block with a key nor a JWK or JWKS"},
		{"an SSH key", "ssh-rsa AAAAB3NzaC1yc2E= me@there", "it holds neither a PEM block with a key nor a JWK or JWKS"},
		{"a truncated block after a good one", good + truncated, "PEM block 2: it is damaged"},
		{"a truncated block before a good one, which pem.Decode skips", truncated + "\n" + good, "PEM block 1: it is damaged"},
		{"a damaged block between good ones", good + badBase64 + good, "PEM block 2: it is damaged"},
		{"a block of something else", good + pemOf("X509 CRL", []byte("crl")), "PEM block 2 (X509 CRL): it is neither a public key that this program can read (PKIX, PKCS#1) nor a certificate"},
		{"bytes after the key", pemOf("PUBLIC KEY", append(spki(rs), 0)), "PEM block 1 (PUBLIC KEY): it is neither a public key"},
		{"RSA 1024", pemOf("PUBLIC KEY", spki(rsaPublic(1024))), "PEM block 1 (PUBLIC KEY): its RSA modulus has 1024 bits; at least 2048 are needed"},
		{"P-224", pemOf("PUBLIC KEY", spki(ecPrivate(elliptic.P224(), 1).Public())), "its curve P-224 is not one of"},
		{"Ed25519", pemOf("PUBLIC KEY", spki(edPublic)), "its type is ed25519"},
		{"control characters in a label", strings.ReplaceAll(pemOf("X", []byte("y")), "X", "\x1b[31mX"), "PEM block 1 (?[31mX)"},

		{"broken JSON", `{"keys":[`, "it looks like a JWK or JWKS but is not valid JSON"},
		{"JSON and more", jwkOf(t, rs, nil) + "x", "it looks like a JWK or JWKS but is not valid JSON"},
		{"JSON of something else", `{"issuer":"https://a.example.com"}`, `it is JSON without a key: neither "kty" nor a non-empty "keys"`},
		{"empty JWKS", jwks(), `it is JSON without a key`},
		{"a JWKS of numbers", jwks("1"), "key 1: it is not a JSON object"},
		{"one bad key among good ones", jwks(jwkOf(t, rs, nil), `{"kty":"RSA"}`), "key 2: it is not a valid JWK for RSA or for P-256, P-384 or P-521"},
		{"two keys under one kid", jwks(with("kid", "a"), jwkOf(t, ec.Public(), map[string]any{"kid": "a"})), `two different keys have the kid "a"`},
		{"key_ops=encrypt", with("key_ops", []string{"encrypt"}), `key 1: its key_ops do not have "verify"`},
		{"use=enc", with("use", "enc"), `key 1: its use is "enc", not "sig"`},
		{"alg of another type", with("alg", "ES256"), `key 1: its alg "ES256" does not fit a key for RS256`},
		{"alg none", with("alg", "none"), `key 1: its alg "none" does not fit`},
		{"Ed25519 as JWK", jwkOf(t, edPublic, nil), "key 1: its type is Ed25519 (kty OKP)"},
		{"an exponent of 72 bits", with("e", base64.RawURLEncoding.EncodeToString([]byte{1, 0, 0, 0, 0, 0, 1, 0, 1})), "key 1: it is not a valid JWK"},
		{"a point off its curve", jwkOf(t, ec.Public(), map[string]any{"y": base64.RawURLEncoding.EncodeToString(make([]byte, 32))}), "key 1: it is not a valid JWK"},
		{"kid with a space", with("kid", "a b"), "key 1: its kid is not 1 to 1024 printable ASCII characters"},
		{"kid outside ASCII", with("kid", "schlüssel"), "key 1: its kid is not"},
		{"x5c of another key", with("x5c", []string{base64.StdEncoding.EncodeToString(certificate(ec))}), "key 1: it is not a valid JWK"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := Parse("the file", []byte(tt.in))
			if err == nil {
				t.Fatalf("accepted as %v", keys)
			}
			if want := "read public keys from the file: "; !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q; want %q and %q in it", err, want, tt.want)
			}
			if errors.Is(err, keystore.ErrPrivateKey) || keys != nil {
				t.Errorf("keys %v, error %v", keys, err)
			}
		})
	}
}

// privateForms is private keys in the forms in which they lie around.
func privateForms(t testing.TB) map[string][]byte {
	t.Helper()
	ec, rs := ecPrivate(elliptic.P256(), 7), rsaPrivate()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"RSA PRIVATE KEY":       x509.MarshalPKCS1PrivateKey(rs),
		"EC PRIVATE KEY":        must(x509.MarshalECPrivateKey(ec)),
		"PRIVATE KEY":           must(x509.MarshalPKCS8PrivateKey(rs)),
		"PRIVATE KEY (EC)":      must(x509.MarshalPKCS8PrivateKey(ec)),
		"PRIVATE KEY (Ed25519)": must(x509.MarshalPKCS8PrivateKey(ed)),
	}
}

func TestPrivateKeysAreRefusedWithoutBeingQuoted(t *testing.T) {
	good := pemOf("PUBLIC KEY", spki(rsaPublic(2048)))
	for form, der := range privateForms(t) {
		own, _, _ := strings.Cut(form, " (")
		whole := pemOf(own, der)
		inputs := map[string]string{
			"under its own label":       whole,
			"after a public key":        good + whole,
			"before a public key":       whole + good,
			"truncated":                 whole[:len(whole)/2],
			"truncated, before a good":  whole[:len(whole)/2] + "\n" + good,
			"with text before":          "here it is:\n" + whole,
			"with legacy PEM headers":   strings.Replace(whole, "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1),
			"encrypted, by its label":   strings.ReplaceAll(whole, own, "ENCRYPTED PRIVATE KEY"),
			"OpenSSH's, by its label":   strings.ReplaceAll(whole, own, "OPENSSH PRIVATE KEY"),
			"CRLF":                      strings.ReplaceAll(whole, "\n", "\r\n"),
			"base64 damaged in between": strings.Replace(whole, "\n", "\n!", 3),
		}
		for _, label := range []string{"PUBLIC KEY", "RSA PUBLIC KEY", "CERTIFICATE", ""} { // told by the label only, and never read
			_, err := Parse("sa.key", []byte(pemOf(label, der)))
			if err == nil {
				t.Errorf("%s under %q was read", form, label)
				continue
			}
			neverQuotes(t, err, pemOf(label, der))
		}
		for how, in := range inputs {
			_, err := Parse("sa.key", []byte(in))
			if !errors.Is(err, keystore.ErrPrivateKey) {
				t.Errorf("%s %s: error %v; want keystore.ErrPrivateKey", form, how, err)
				continue
			}
			if !strings.HasPrefix(err.Error(), "read public keys from sa.key: PEM block ") {
				t.Errorf("%s %s: the error %q names neither file nor block", form, how, err)
			}
			neverQuotes(t, err, in)
		}
	}
}

func TestPrivateJWKsAreRefused(t *testing.T) {
	rs, ec := jwkOf(t, rsaPublic(2048), nil), jwkOf(t, ecPrivate(elliptic.P256(), 1).Public(), nil)
	for _, member := range privatekey.Members() {
		for _, value := range []string{`"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"`, `""`, `null`, `[1]`} {
			for _, public := range []string{rs, ec, `{"kty":"oct"}`} {
				private := `{"` + member + `":` + value + `,` + public[1:]
				for _, in := range []string{private, jwks(rs, private), strings.Replace(private, `"`+member, `"\u00`+fmt.Sprintf("%x", member[0])+member[1:], 1)} {
					_, err := Parse("jwk", []byte(in))
					if !errors.Is(err, keystore.ErrPrivateKey) || !strings.Contains(err.Error(), fmt.Sprintf("private member %q", member)) {
						t.Errorf("%.60s…: error %v", in, err)
						continue
					}
					neverQuotes(t, err, in)
				}
			}
		}
	}
	private := must((&jose.JSONWebKey{Key: ecPrivate(elliptic.P256(), 3)}).MarshalJSON())
	_, err := Parse("jwk", private)
	if !errors.Is(err, keystore.ErrPrivateKey) {
		t.Errorf("a whole private JWK: error %v", err)
	}
	neverQuotes(t, err, string(private))
}

// neverQuotes fails if the error holds 16 characters in a row of the input's base64.
func neverQuotes(t *testing.T, err error, in string) {
	t.Helper()
	const run = 16
	for _, line := range strings.FieldsFunc(in, func(r rune) bool { return strings.ContainsRune("\r\n\" -", r) }) {
		for i := 0; i+run <= len(line); i++ {
			if strings.Contains(err.Error(), line[i:i+run]) {
				t.Errorf("the error %q quotes the input: %q", err, line[i:i+run])
				return
			}
		}
	}
}

// FuzzParsePublicKeys: whatever is accepted is public, and reads again as the same keys once it is written.
func FuzzParsePublicKeys(f *testing.F) {
	rs, ec := rsaPublic(2048), ecPrivate(elliptic.P256(), 1)
	for _, seed := range []string{
		vectorRSA, vectorEC, vectorRSA + vectorEC, pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rs)),
		pemOf("CERTIFICATE", certificate(ec)), pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec))),
		pemOf("PUBLIC KEY", must(x509.MarshalPKCS8PrivateKey(ec))), strings.ReplaceAll(vectorEC, "\n", "\r\n"),
		jwkOf(f, rs, map[string]any{"kid": "a", "alg": "RS512"}), jwks(jwkOf(f, rs, nil), jwkOf(f, ec.Public(), nil)),
		`{"keys":[{"kty":"oct","k":"AAAA"}]}`, vectorEC[:60] + vectorEC, `{"keys":[{"kty":"EC","crv":"P-256","x":"","y":""}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		var written bytes.Buffer
		for _, k := range keys {
			if err := pem.Encode(&written, &pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(k.Key()))}); err != nil {
				t.Fatal(err)
			}
		}
		again, err := Parse("written", written.Bytes())
		if err != nil {
			t.Fatalf("accepted keys are refused once written: %v", err)
		}
		for _, k := range keys {
			if !anySameMaterial(again, k) {
				t.Errorf("key %s is another one once written", k.ID())
			}
			if id := string(k.ID()); id == "" || len(id) > 1024 || strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
				t.Errorf("accepted the kid %q", k.ID())
			}
			if _, isPrivate := k.Key().(crypto.Signer); isPrivate {
				t.Errorf("key %s can sign", k.ID())
			}
		}
	})
}

func anySameMaterial(keys []keystore.VerificationKey, k keystore.VerificationKey) bool {
	for _, have := range keys {
		if have.Fingerprint() == k.Fingerprint() {
			return true
		}
	}
	return false
}
