package pubkey

import (
	"crypto/elliptic"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

var (
	ecPrivate  = keys.EC
	rsaPublic  = keys.PublicRSA
	rsaPrivate = keys.NewRSA()
	pemOf      = keys.PEM
	spki       = keys.SPKI

	certificate = keys.Certificate
)

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
