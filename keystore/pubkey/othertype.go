package pubkey

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// Left is a public key of a JWKS that was left out, as no key set can have one of its type.
type Left struct {
	Number int // in the JWKS, from 1
	ID     string
	Type   string
}

// String says it as a sentence.
func (l Left) String() string {
	kid := ""
	if l.ID != "" {
		kid = ", kid " + printable(l.ID) + ","
	}
	return fmt.Sprintf("key %d%s is for %s: it was left out, since AWS, Entra and Google Cloud do not take its tokens; "+
		"the cluster must not sign with it", l.Number, kid, l.Type)
}

func (l Left) refusal() error {
	return fmt.Errorf("key %d: %w", l.Number, &otherTypeError{name: l.Type})
}

// otherTypeError refuses a JWK of kty AKP (ML-DSA, RFC 9964) or OKP (RFC 8037).
type otherTypeError struct{ id, name string }

func (e *otherTypeError) Error() string {
	_, err := keystore.NewPublic(typeName(e.name)) // it words the refusal of every type
	return err.Error()
}

// typeName stands for a key of such a type.
type typeName string

func (n typeName) String() string { return string(n) }

// otherType returns nil for a JWK of another kty than those.
func otherType(jwk map[string]json.RawMessage) *otherTypeError {
	text := func(member string) (s string) {
		_ = json.Unmarshal(jwk[member], &s) // it is only for a name
		return s
	}
	kty := text("kty")
	algorithm, is := map[string]string{"AKP": "alg", "OKP": "crv"}[kty]
	if !is {
		return nil
	}
	return &otherTypeError{text("kid"), strings.TrimSpace(printable(text(algorithm)) + " (kty " + kty + ")")}
}
