package keystore

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
)

// MaxMaterial bounds public-key input, in bytes: 200 keys of the largest size fit many times over.
const MaxMaterial = 1 << 20

// ErrPrivateKey is wrapped by the refusal of input that holds a private key. Only package signingkey reads those.
var ErrPrivateKey = errors.New("it is a private key")

// ParsePublicKeys reads every verification key in data: PEM blocks under any label (PKIX, PKCS#1, certificate), a
// JWK, or a JWKS. Keys without a key ID get the computed one. All of it is good or nothing is returned: an error
// names source, the block or key, and the reason. It never quotes data.
//
// The label of a PEM block is ignored since Kubernetes' keyutil.ParsePublicKeysPEM ignores it and OpenShift writes
// PKIX bytes under "RSA PUBLIC KEY".
func ParsePublicKeys(source string, data []byte) ([]VerificationKey, error) {
	keys, err := parseMaterial(data)
	if err != nil {
		return nil, fmt.Errorf("read public keys from %s: %w", source, err)
	}
	seen := map[KeyID]VerificationKey{}
	distinct := keys[:0]
	for _, k := range keys {
		was, twice := seen[k.id]
		if twice && !was.Equal(k) {
			return nil, fmt.Errorf("read public keys from %s: two different keys have the kid %q", source, k.id)
		}
		if !twice {
			seen[k.id], distinct = k, append(distinct, k)
		}
	}
	return distinct, nil
}

func parseMaterial(data []byte) ([]VerificationKey, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // editors of Windows begin a file with it
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(data) > MaxMaterial:
		return nil, fmt.Errorf("it is larger than %d bytes", MaxMaterial)
	case len(trimmed) == 0:
		return nil, errors.New("it is empty")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, errors.New("it is UTF-16; save it as UTF-8")
	case trimmed[0] == '{':
		return parseJSON(trimmed)
	}
	return parsePEM(data)
}

func parsePEM(data []byte) ([]VerificationKey, error) {
	var keys []VerificationKey
	for n := 1; ; n++ {
		block, rest := pem.Decode(data)
		read := data[:len(data)-len(rest)]
		if block == nil {
			read = data
		}
		if err := checkSkipped(read, block); err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", n, err)
		}
		if block == nil {
			break
		}
		data = rest
		k, err := parseDER(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d (%s): %w", n, printable(block.Type), err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds neither a PEM block nor a JWK or JWKS")
	}
	return keys, nil
}

// checkSkipped looks at what pem.Decode read to find block: it passes over a damaged block without a word, and the
// key in it would be missing from the key set as silently.
func checkSkipped(read []byte, block *pem.Block) error {
	begins := bytes.Count(read, []byte("-----BEGIN"))
	switch {
	case block != nil && begins == 1, begins == 0:
		return nil
	case hasPrivateLabel(read):
		return ErrPrivateKey
	}
	return errors.New("it is damaged (check its first and last line and its base64)")
}

func parseDER(block *pem.Block) (VerificationKey, error) {
	if strings.Contains(block.Type, "PRIVATE KEY") {
		return VerificationKey{}, ErrPrivateKey
	}
	key, err := publicFromDER(block.Bytes)
	if err != nil {
		return VerificationKey{}, err
	}
	return NewPublic(key)
}

func publicFromDER(der []byte) (crypto.PublicKey, error) {
	if k, err := x509.ParsePKIXPublicKey(der); err == nil { // the form in documents comes first: it costs least
		return k, nil
	}
	if isPrivateDER(der) {
		return nil, ErrPrivateKey
	}
	if k, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return k, nil
	}
	if c, err := x509.ParseCertificate(der); err == nil {
		return c.PublicKey, nil
	}
	return nil, errors.New("it is no public key that this program can read (PKIX, PKCS#1) and no certificate")
}

// ExpiredSince returns when the last of the certificates in data expired, if any of them has. The keys in them are good
// nevertheless: what counts is what the key set says of a key. But whoever gives an old file may have meant another.
func ExpiredSince(data []byte, now time.Time) (since time.Time, expired bool) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.Before(now) {
			since, expired = later(since, c.NotAfter), true
		}
	}
	return since, expired
}

// isPrivateDER catches a private key under a wrong label, which must not slip through as "unreadable" with a hint to
// try something else.
func isPrivateDER(der []byte) bool {
	_, pkcs8 := x509.ParsePKCS8PrivateKey(der)
	_, pkcs1 := x509.ParsePKCS1PrivateKey(der)
	_, ec := x509.ParseECPrivateKey(der)
	return pkcs8 == nil || pkcs1 == nil || ec == nil
}

func parseJSON(data []byte) ([]VerificationKey, error) {
	var tree any
	if err := checkMaterialShape(data); err != nil {
		return nil, err
	}
	if err := decodeJSON(data, &tree); err != nil {
		return nil, fmt.Errorf("it looks like a JWK or JWKS but is not valid JSON: %s", printableLine(err))
	}
	var set struct {
		Keys *[]json.RawMessage `json:"keys"`
		Kty  string             `json:"kty"`
	}
	if err := decodeJSON(data, &set); err != nil {
		return nil, errors.New(`it is no JWKS: "keys" must be a list, and "kty" a text`)
	}
	if set.Keys == nil && set.Kty != "" {
		set.Keys = &[]json.RawMessage{data}
	}
	if set.Keys == nil || len(*set.Keys) == 0 {
		return nil, errors.New(`it is JSON without a key: neither "kty" nor a non-empty "keys"`)
	}
	keys := make([]VerificationKey, 0, len(*set.Keys))
	for n, raw := range *set.Keys {
		k, err := parseJWK(raw)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n+1, err)
		}
		keys = append(keys, k)
	}
	if where, found := findIn(tree); found { // deeper than where the keys themselves have it
		return nil, fmt.Errorf("%s: %w", printable(where), ErrPrivateKey)
	}
	return keys, nil
}

func checkMaterialShape(data []byte) error {
	if !json.Valid(data) { // whose reader says what is wrong, without recursion
		return nil
	}
	return strictyaml.CheckShape(data)
}

func parseJWK(raw json.RawMessage) (VerificationKey, error) {
	var members map[string]json.RawMessage
	if err := decodeJSON(raw, &members); err != nil {
		return VerificationKey{}, errors.New("it is not a JSON object")
	}
	for _, m := range privateMembers {
		if _, ok := members[m]; ok {
			return VerificationKey{}, fmt.Errorf("it has the private member %q: %w", m, ErrPrivateKey)
		}
	}
	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(raw); err != nil {
		return VerificationKey{}, errors.New("it is no valid JWK for RSA or for P-256, P-384 or P-521 (RFC 7517)")
	}
	if jwk.Use != "" && jwk.Use != "sig" {
		return VerificationKey{}, fmt.Errorf("its use is %q, not \"sig\"", printable(jwk.Use))
	}
	k, err := NewPublic(jwk.Key)
	if err != nil {
		return VerificationKey{}, err
	}
	return k.as(KeyID(jwk.KeyID), jwk.Algorithm)
}

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones
// short: a computed kid just fits.
func printable(s string) string { return text.OneLine(s, 64) }
