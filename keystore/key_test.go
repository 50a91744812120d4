package keystore

import (
	"crypto"
	"crypto/dsa" //nolint:staticcheck // a kind of key to refuse
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"
)

func TestNewPublicTakesWhatCloudsAndKubernetesAccept(t *testing.T) {
	even := rsaPublic(2048)
	even.N = new(big.Int).SetBit(even.N, 0, 0)
	offCurve := &ecdsa.PublicKey{Curve: elliptic.P256(), X: big.NewInt(1), Y: big.NewInt(1)} //nolint:staticcheck // only so can a point off the curve be made
	exponent := func(e int) *rsa.PublicKey { return &rsa.PublicKey{N: rsaPublic(2048).N, E: e} }

	tests := []struct {
		name    string
		key     crypto.PublicKey
		alg     string
		refused string
	}{
		{name: "RSA 2048", key: rsaPublic(2048), alg: "RS256"},
		{name: "RSA 8192", key: rsaPublic(8192), alg: "RS256"},
		{name: "RSA exponent 3", key: exponent(3), alg: "RS256"},
		{name: "largest exponent", key: exponent(1<<31 - 1), alg: "RS256"},
		{name: "P-256", key: ecPrivate(elliptic.P256(), 1).Public(), alg: "ES256"},
		{name: "P-384", key: ecPrivate(elliptic.P384(), 1).Public(), alg: "ES384"},
		{name: "P-521", key: ecPrivate(elliptic.P521(), 1).Public(), alg: "ES512"},

		{name: "RSA 1024", key: rsaPublic(1024), refused: "its RSA modulus has 1024 bits; at least 2048 are needed"},
		{name: "RSA 2040", key: rsaPublic(2040), refused: "its RSA modulus has 2040 bits; at least 2048 are needed"},
		{name: "RSA 8200", key: rsaPublic(8200), refused: "its RSA modulus has 8200 bits; at most 8192 are accepted"},
		{name: "even modulus", key: even, refused: "its RSA modulus is even"},
		{name: "exponent 1", key: exponent(1), refused: "its RSA exponent 1 is not an odd number"},
		{name: "even exponent", key: exponent(65536), refused: "its RSA exponent 65536 is not an odd number"},
		{name: "exponent that crypto/x509 would not read back", key: exponent(1<<31 + 1), refused: "its RSA exponent 2147483649 is not"},
		{name: "P-224", key: ecPrivate(elliptic.P224(), 1).Public(), refused: "its curve P-224 is not one of P-256, P-384, P-521"},
		{name: "point off the curve", key: offCurve, refused: "its point does not lie on its curve"},
		{name: "Ed25519", key: ed25519.PublicKey(make([]byte, 32)), refused: "its type is ed25519, and AWS, Entra and Google Cloud do not take its tokens; let the cluster sign with RSA or ECDSA"},
		{name: "DSA", key: &dsa.PublicKey{}, refused: "its type is dsa"},
		{name: "private key", key: ecPrivate(elliptic.P256(), 1), refused: "sign with RSA or ECDSA"},
		{name: "nothing", key: nil, refused: "sign with RSA or ECDSA"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewPublic(tt.key)
			switch {
			case tt.refused == "" && (err != nil || p.Alg() != tt.alg || p.Key() != tt.key):
				t.Errorf("got alg %q, error %v; want %q", p.Alg(), err, tt.alg)
			case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("got error %v; want one with %q", err, tt.refused)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[Name]bool{
		"a": true, "0": true, "prod-a": true, "a--b": true, Name(strings.Repeat("a", 63)): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a/b": false, "..": false, "a b": false, "a\n": false,
		"ä": false, "a\x00": false, Name(strings.Repeat("a", 64)): false,
	} {
		if err := name.Check(); (err == nil) != good {
			t.Errorf("%q: error %v", name, err)
		}
	}
}
