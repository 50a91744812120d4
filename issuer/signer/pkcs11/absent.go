//go:build !pkcs11

package pkcs11

import (
	"context"
	"crypto"
	"errors"

	"github.com/keypost/keypost/keystore"
)

// Keys is never returned by this build.
type Keys struct{}

// Key is never returned by this build.
type Key struct{}

// Open returns an error.
func Open(Token) (*Keys, error) {
	return nil, errors.New("this program was built without PKCS#11; build it with CGO_ENABLED=1 go build -tags pkcs11 ./cmd/keypost-signer")
}

// Keys returns nothing.
func (*Keys) Keys(context.Context) ([]Key, error) { return nil, nil }

// Public returns nothing.
func (Key) Public() (none keystore.VerificationKey) { return none }

// Where returns nothing.
func (Key) Where() string { return "" }

// Sign returns an error.
func (Key) Sign(context.Context, []byte, crypto.Hash) ([]byte, error) {
	return nil, errors.New("this program was built without PKCS#11")
}
