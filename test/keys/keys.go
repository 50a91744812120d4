// Package keys has the keys and encodings that the tests of several packages use. It imports none of the project's
// packages, so that their internal tests can import it.
package keys

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// EC returns the same private key for the same number in every run, so that failures repeat.
func EC(curve elliptic.Curve, n int) *ecdsa.PrivateKey {
	seed := sha512.Sum512(fmt.Appendf(nil, "key %d on %s", n, curve.Params().Name))
	scalar := make([]byte, (curve.Params().BitSize+7)/8)
	copy(scalar[len(scalar)-28:], seed[:]) // below the order of every curve
	return must(ecdsa.ParseRawPrivateKey(curve, scalar))
}

// NewEC returns a private key that nobody else has.
func NewEC() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// PublicRSA returns a public key with a modulus of that many bits. Nobody knows its factors,
// which a verification key does not need.
func PublicRSA(bits int) *rsa.PublicKey {
	var b []byte
	for i := 0; len(b) < bits/8; i++ {
		h := sha256.Sum256(fmt.Appendf(nil, "modulus %d %d", bits, i))
		b = append(b, h[:]...)
	}
	n := new(big.Int).SetBytes(b[:bits/8])
	return &rsa.PublicKey{N: n.SetBit(n.SetBit(n, bits-1, 1), 0, 1), E: 65537}
}

// NewRSA returns a function that makes a real RSA key when it is called first, and returns that one from then on.
func NewRSA() func() *rsa.PrivateKey {
	return sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
}

// PEM returns one block.
func PEM(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

// SPKI returns the PKIX form of a public key.
func SPKI(key crypto.PublicKey) []byte { return must(x509.MarshalPKIXPublicKey(key)) }

// Certificate returns a certificate that a key gives itself.
func Certificate(key *ecdsa.PrivateKey) []byte {
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sa"}, NotBefore: time.Now(), NotAfter: time.Now().AddDate(1, 0, 0)}
	return must(x509.CreateCertificate(rand.Reader, c, c, key.Public(), key))
}

// Private reads a private key in the PEM that keypost key generate writes.
func Private(text []byte) crypto.Signer {
	block, _ := pem.Decode(text)
	if block.Type == "EC PRIVATE KEY" {
		return must(x509.ParseECPrivateKey(block.Bytes))
	}
	return must(x509.ParsePKCS1PrivateKey(block.Bytes))
}

// JWS signs claims. Without a kid the header has none.
func JWS(key any, alg jose.SignatureAlgorithm, kid string, claims any) string {
	var options jose.SignerOptions
	if kid != "" {
		options.WithHeader("kid", kid)
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &options))
	signed := must(signer.Sign(must(json.Marshal(claims))))
	return must(signed.CompactSerialize())
}

// must returns v, and panics with err.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
