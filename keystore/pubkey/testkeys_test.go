package pubkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// t0 is when the certificates of the tests begin.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ecPrivate makes the same private key for the same number in every run, so that failures repeat.
func ecPrivate(curve elliptic.Curve, n int) *ecdsa.PrivateKey {
	seed := sha512.Sum512(fmt.Appendf(nil, "key %d on %s", n, curve.Params().Name))
	scalar := make([]byte, (curve.Params().BitSize+7)/8)
	copy(scalar[len(scalar)-28:], seed[:]) // below the order of every curve
	k, err := ecdsa.ParseRawPrivateKey(curve, scalar)
	if err != nil {
		panic(err)
	}
	return k
}

// testKey is the n-th of the ECDSA verification keys that the tests use.
func testKey(n int) keystore.VerificationKey {
	return must(keystore.NewPublic(ecPrivate(elliptic.P256(), n).Public()))
}

// rsaPublic has a modulus of that many bits. Nobody knows its factors, which a verification key does not need.
func rsaPublic(bits int) *rsa.PublicKey {
	var b []byte
	for i := 0; len(b) < bits/8; i++ {
		h := sha256.Sum256(fmt.Appendf(nil, "modulus %d %d", bits, i))
		b = append(b, h[:]...)
	}
	n := new(big.Int).SetBytes(b[:bits/8])
	return &rsa.PublicKey{N: n.SetBit(n.SetBit(n, bits-1, 1), 0, 1), E: 65537}
}

// rsaPrivate is the one real RSA key.
var rsaPrivate = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func pemOf(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func spki(key crypto.PublicKey) []byte { return must(x509.MarshalPKIXPublicKey(key)) }

func mustPublic(t testing.TB, key crypto.PublicKey) keystore.VerificationKey {
	t.Helper()
	p, err := keystore.NewPublic(key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
