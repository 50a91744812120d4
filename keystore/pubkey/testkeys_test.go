package pubkey

import (
	"crypto"
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

var (
	ecPrivate  = keys.EC
	rsaPublic  = keys.PublicRSA
	rsaPrivate = keys.NewRSA()
	pemOf      = keys.PEM
	spki       = keys.SPKI
)

// t0 is when the certificates of the tests begin.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testKey is the n-th of the ECDSA verification keys that the tests use.
func testKey(n int) keystore.VerificationKey {
	return must(keystore.NewPublic(ecPrivate(elliptic.P256(), n).Public()))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustPublic(t testing.TB, key crypto.PublicKey) keystore.VerificationKey {
	t.Helper()
	p, err := keystore.NewPublic(key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
