package pubkey

import (
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// The key IDs were computed with
// openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | basenc --base64url, without the padding.
const (
	vectorRSA = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAq+uyxTT2rFma9hzydzt/
Pcclqeg1JC+ECPJ+vzoBpL30aiVRwvwSA+ny5RYw8RNFGVnqnCKOwAK007XLIIsf
VcMXr1rz+ju7orOiPMnaFLBp6aFJj+MrBn3aSQfdSpNVlcx5J3A/UA2BiAs0cpMl
g497RIpuOrWP8L/C9eq0oY29VMVn4y6dCMbt/5mgF1hA9gwG9xQynwIlmwOd9GCZ
B/GjmkgVGYheTGjrXe9ogLpfdiPe7zesKnIgHkLw12F/zfGBuB6EVJLcquVgE27Z
MW4XQUwWGsxIbgvraMrJgt/bB4ZB70GrYe/2G2OqXtNZoNZa2kalkaEJwlPUDtWv
/wIDAQAB
-----END PUBLIC KEY-----
`
	vectorRSAID = "UqgQpsfkxJSzVXvfS7sjA4TGeiNBI2dG0XgzWyGIpbw"
	vectorEC    = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf/y8hQ8ENy4CrS7gJB7I5BM4Scoc
QgDRZk1y4XtaJ/f6P19b5Olct54cHcGeXQldHC0v2GLnZEHxjkJZciJ4aA==
-----END PUBLIC KEY-----
`
	vectorECID = "KR5wlhF6LnRcL1sQAHyX61cq4gJ4RwNPbq5iRZ1fL8A"
)

func TestKeyIDIsTheOneThatKubernetesComputes(t *testing.T) {
	for name, v := range map[string]struct{ pem, id, alg string }{
		"RSA":   {vectorRSA, vectorRSAID, "RS256"},
		"ECDSA": {vectorEC, vectorECID, "ES256"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := Parse("vector", []byte(v.pem))
			if err != nil {
				t.Fatal(err)
			}
			if k := keys[0]; string(k.ID()) != v.id || k.Alg() != v.alg || k.Imported() {
				t.Errorf("kid %s alg %s imported %v; want %s %s false", k.ID(), k.Alg(), k.Imported(), v.id, v.alg)
			}
		})
	}
}

// Two readers of one text must not see two different keys in it.
func TestJWKSAreReadAsTheyAreWritten(t *testing.T) {
	a, b := jwkOf(t, testKey(0).Key(), map[string]any{"kid": "a"}), jwkOf(t, testKey(1).Key(), map[string]any{"kid": "b"})
	keys, err := Parse("x", []byte(`{"keys":[`+a+`],"KEYS":[`+b+`],"Keys":1}`))
	if err != nil || len(keys) != 1 || keys[0].ID() != "a" {
		t.Errorf("names in another case: keys %v, error %v", keys, err)
	}
	for name, text := range map[string]string{
		"keys twice":               `{"keys":[` + a + `],"keys":[` + b + `]}`,
		"kid twice":                strings.Replace(a, `"kid"`, `"kid":"b","kid"`, 1),
		"kid twice in a set":       `{"keys":[` + strings.Replace(a, `"kid"`, `"kid":"b","kid"`, 1) + `]}`,
		"twice in an escape":       strings.Replace(a, `"kid"`, `"k\u0069d":"b","kid"`, 1),
		"twice, deep inside":       strings.Replace(a, `"kid"`, `"ext":{"x":1,"x":2},"kid"`, 1),
		"text after the JSON":      a + "x",
		"only in another case":     `{"KEYS":[` + b + `]}`,
		"a member in another case": strings.Replace(a, `"kty"`, `"KTY"`, 1),
	} {
		if keys, err := Parse("x", []byte(text)); err == nil {
			t.Errorf("%s: %v", name, keys)
		}
	}
	for name, text := range map[string]string{
		"a nested JWK":   strings.Replace(a, `"kid"`, `"ext":{"kty":"EC","d":"x"},"kid"`, 1),
		"beside the set": `{"keys":[` + a + `],"old":{"kty":"RSA","p":"x"}}`,
		"a PEM in a kid": strings.Replace(a, `"kid"`, `"note":"`+strings.ReplaceAll(pemOf("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ecPrivate(elliptic.P256(), 3)))), "\n", `\n`)+`","kid"`, 1),
	} {
		if _, err := Parse("x", []byte(text)); !errors.Is(err, keystore.ErrPrivateKey) {
			t.Errorf("a private key in %s: error %v", name, err)
		}
	}
}

func TestFilesFromWindowsAreRead(t *testing.T) {
	text := pemOf("PUBLIC KEY", spki(testKey(0).Key()))
	for name, data := range map[string]string{
		"PEM": "\ufeff" + strings.ReplaceAll(text, "\n", "\r\n"),
		"JWK": "\ufeff" + jwkOf(t, testKey(0).Key(), nil),
	} {
		if keys, err := Parse("sa.pub", []byte(data)); err != nil || len(keys) != 1 || keys[0].ID() != testKey(0).ID() {
			t.Errorf("%s with a byte order mark: %v, error %v", name, keys, err)
		}
	}
	if _, err := Parse("sa.pub", []byte("\xff\xfe-\x00-\x00")); err == nil || !strings.Contains(err.Error(), "it is UTF-16; save it as UTF-8") {
		t.Errorf("UTF-16: error %v", err)
	}
}
