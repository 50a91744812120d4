package keystore

import (
	"crypto"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore/key"
)

type (
	// KeyID is a key's `kid`.
	KeyID = key.ID
	// Fingerprint identifies key material whatever kid it has.
	Fingerprint = key.Fingerprint
	// VerificationKey is an RSA or ECDSA public key under its key ID; see package key.
	VerificationKey = key.VerificationKey
	// Key is a verification key in a key set.
	Key = key.Key
	// State is where a published key stands between its publication and its removal.
	State = key.State
)

// The states of a published key.
const (
	Next    = key.Next
	Active  = key.Active
	Retired = key.Retired
)

// ErrPrivateKey is wrapped by the refusal of input that holds a private key.
var ErrPrivateKey = key.ErrPrivateKey

// NewPublic returns an *rsa.PublicKey or *ecdsa.PublicKey under the key ID and algorithm that Kubernetes gives it.
func NewPublic(public crypto.PublicKey) (VerificationKey, error) { return key.NewPublic(public) }

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones
// short: a computed kid just fits.
func printable(s string) string { return text.OneLine(s, 64) }
