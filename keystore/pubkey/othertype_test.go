package pubkey

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// mldsa returns the keys of testdata/rfc9964.json, as public JWKs and as they are: private.
func mldsa(t *testing.T) (public, private []string) {
	t.Helper()
	var file struct{ Keys []map[string]string }
	if err := json.Unmarshal(must(os.ReadFile("testdata/rfc9964.json")), &file); err != nil {
		t.Fatal(err)
	}
	for _, k := range file.Keys {
		private = append(private, string(must(json.Marshal(k))))
		half := maps.Clone(k)
		delete(half, "priv")
		public = append(public, string(must(json.Marshal(half))))
	}
	return public, private
}

func TestKeysOfOtherTypesAreLeftOut(t *testing.T) {
	rs, ed := jwkOf(t, rsaPublic(2048), map[string]any{"kid": "rsa"}), jwkOf(t, edPublic, nil)
	public, _ := mldsa(t)
	for name, in := range map[string]string{
		"all at once":      jwks(rs, public[0], public[1], public[2], ed),
		"a member besides": strings.Replace(jwks(rs, public[0], public[1], public[2], ed), "{", `{"note":"x",`, 1),
	} {
		keys, left, err := ParseUsable("x", []byte(in), nil)
		if err != nil || len(keys) != 1 || keys[0].ID() != "rsa" || len(left) != 4 {
			t.Fatalf("%s: %v, %v, %v", name, keys, left, err)
		}
		for i, want := range []string{
			"key 2, kid T4xl70S7MT6Zeq6r9V9fPJGVn76wfnXJ21-gyo0Gu6o, is for ML-DSA-44 (kty AKP): it was left out, since AWS, Entra and Google Cloud",
			"key 3, kid Suiu29qbfuaBaR4Ats-c6XQBePB_OpAxAwcTR_0KXVM, is for ML-DSA-65 (kty AKP): ",
			"key 4, kid tRn1JNIkgMsABVQBlXeDHxAIcclh-2IX0UdDEzPt5XU, is for ML-DSA-87 (kty AKP): ",
			"key 5 is for Ed25519 (kty OKP): ",
		} {
			if !strings.HasPrefix(left[i].String(), want) {
				t.Errorf("%s: %q, want %q", name, left[i], want)
			}
		}
		if _, err := Parse("x", []byte(in)); err == nil || !strings.Contains(err.Error(), "key 2: its type is ML-DSA-44 (kty AKP)") {
			t.Errorf("%s: Parse is not strict: %v", name, err)
		}
	}
	l := Left{Number: 1, ID: "a\x1b[31m" + strings.Repeat("k", 1000), Type: "x"}
	if s := l.String(); strings.Contains(s, "\x1b") || len(s) > 300 {
		t.Errorf("%q", s)
	}
}

// A key of another type is left out only beside one that is usable, and with no private key anywhere.
func TestAJWKSWithKeysOfOtherTypesIsRefused(t *testing.T) {
	rs := jwkOf(t, rsaPublic(2048), map[string]any{"kid": "rsa"})
	public, private := mldsa(t)
	for name, tt := range map[string]struct{ in, want string }{
		"nothing usable":         {jwks(public[1]), "key 1: its type is ML-DSA-65 (kty AKP), and AWS, Entra and Google Cloud do not take its tokens; let the cluster sign with RSA or ECDSA"},
		"one key, and no set":    {public[2], "key 1: its type is ML-DSA-87 (kty AKP), and AWS"},
		"beside a broken one":    {jwks(public[0], `{"kty":"RSA"}`), "key 2: it is not a valid JWK"},
		"a curve that none has":  {jwks(`{"kty":"OKP","crv":"\u001b[31m"}`), "key 1: its type is ?[31m (kty OKP)"},
		"a member twice":         {jwks(rs, strings.Replace(public[0], `"kty"`, `"kty":"RSA","kty"`, 1)), "duplicate field"},
		"a seed among keys":      {jwks(rs, private[0]), `key 2: it has the private member "priv"`},
		"behind one left out":    {jwks(rs, public[1], private[0]), `key 3: it has the private member "priv"`},
		"a scalar of Ed25519":    {jwks(rs, jwkOf(t, edPublic, map[string]any{"d": "x"})), `key 2: it has the private member "d"`},
		"a seed beside the keys": {`{"keys":[` + rs + `],"old":` + private[0] + `}`, "old.priv: it is a private key"},
		"a seed as a member":     {strings.Replace(private[0], "{", `{"keys":[`+rs+`],`, 1), "priv: it is a private key"},
		"a seed in one left out": {jwks(rs, strings.Replace(public[0], "{", `{"ext":`+private[0]+`,`, 1)), "keys[1].ext.priv: it is a private key"},
	} {
		keys, left, err := ParseUsable("x", []byte(tt.in), nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) || keys != nil || left != nil {
			t.Errorf("%s: %v, %v, error %v, want %q", name, keys, left, err, tt.want)
			continue
		}
		_, strict := Parse("x", []byte(tt.in))
		if private := strings.Contains(tt.want, "private"); errors.Is(err, keystore.ErrPrivateKey) != private || errors.Is(strict, keystore.ErrPrivateKey) != private {
			t.Errorf("%s: errors %v and %v", name, err, strict)
		}
		neverQuotes(t, err, tt.in)
	}
}
