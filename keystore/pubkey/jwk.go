package pubkey

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/keypost/keypost/internal/privatekey"
	"github.com/keypost/keypost/internal/strictjson"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

func parseJSON(data []byte) ([]keystore.VerificationKey, []Left, error) {
	var tree any
	if err := strictjson.Decode(data, &tree); err != nil {
		return nil, nil, fmt.Errorf("it looks like a JWK or JWKS but is not valid JSON: %s", firstLine(err))
	}
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
		Kty  string             `json:"kty"`
	}
	if err := strictjson.Decode(data, &set); err != nil {
		return nil, nil, errors.New(`it is not a JWKS: "keys" must be a list, and "kty" a text`)
	}
	if set.Keys == nil && set.Kty != "" {
		set.Keys = &[]json.RawMessage{data}
	}
	if set.Keys == nil || len(*set.Keys) == 0 {
		return nil, nil, errors.New(`it is JSON without a key: neither "kty" nor a non-empty "keys"`)
	}
	keys := make([]keystore.VerificationKey, 0, len(*set.Keys))
	var left []Left
	var refused error // the first one; a private key further on matters more
	for n, raw := range *set.Keys {
		k, err := parseJWK(raw)
		other, isOther := errors.AsType[*otherTypeError](err)
		switch {
		case errors.Is(err, keystore.ErrPrivateKey):
			return nil, nil, fmt.Errorf("key %d: %w", n+1, err)
		case isOther:
			left = append(left, Left{n + 1, other.id, other.name})
		case err != nil:
			refused = cmp.Or(refused, fmt.Errorf("key %d: %w", n+1, err))
		default:
			keys = append(keys, k)
		}
	}
	if where, found := privatekey.Find(tree); found { // deeper than where the keys themselves have it
		return nil, nil, fmt.Errorf("%s: %w", printable(where), keystore.ErrPrivateKey)
	}
	if refused == nil && len(keys) == 0 {
		refused = left[0].refusal()
	}
	return keys, left, refused
}

func parseJWK(raw json.RawMessage) (keystore.VerificationKey, error) {
	var members map[string]json.RawMessage
	if err := strictjson.Decode(raw, &members); err != nil {
		return keystore.VerificationKey{}, errors.New("it is not a JSON object")
	}
	for _, m := range privatekey.Members() {
		if _, ok := members[m]; ok {
			return keystore.VerificationKey{}, fmt.Errorf("it has the private member %q: %w", m, keystore.ErrPrivateKey)
		}
	}
	if other := otherType(members); other != nil {
		return keystore.VerificationKey{}, other
	}
	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(raw); err != nil {
		return keystore.VerificationKey{}, errors.New("it is not a valid JWK for RSA or for P-256, P-384 or P-521 (RFC 7517)")
	}
	if jwk.Use != "" && jwk.Use != "sig" {
		return keystore.VerificationKey{}, fmt.Errorf("its use is %q, not \"sig\"", printable(jwk.Use))
	}
	if ops, has := members["key_ops"]; has { // RFC 7517, section 4.3
		var list []string
		if json.Unmarshal(ops, &list) != nil || !slices.Contains(list, "verify") {
			return keystore.VerificationKey{}, errors.New(`its key_ops do not have "verify"`)
		}
	}
	k, err := keystore.NewPublic(jwk.Key)
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	// The algorithm is what the JWKS says, if the key can have it: nothing else reports whether its signer uses RS512, as an external one
	// of a cluster may. Where a declared relying party does not take that, it is refused later.
	return k.WithID(keystore.KeyID(jwk.KeyID), jwk.Algorithm)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return text.OneLine(line, 200)
}
