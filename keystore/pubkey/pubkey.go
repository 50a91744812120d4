// Package pubkey reads verification keys from PEM files, certificates, JWKs and JWKS. It returns either all keys of an
// input or an error, and never takes a private key for a public one.
package pubkey

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/keypost/keypost/internal/keypem"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// MaxSize bounds an input, in bytes: 200 keys of the largest size fit many times over.
const MaxSize = 1 << 20

// Parse reads every verification key in data: PEM blocks under any label (PKIX, PKCS#1, certificate), a JWK, or a JWKS.
// Keys without a key ID get the computed one. An error names source, the block or key, and the reason. It quotes no key
// material, and wraps [keystore.ErrPrivateKey] if data holds a private key.
func Parse(source string, data []byte) ([]keystore.VerificationKey, error) {
	keys, left, err := ParseUsable(source, data, nil)
	if len(left) > 0 {
		return nil, named(source, left[0].refusal())
	}
	return keys, err
}

// A DeriveFunc returns the public half of a PEM block with a private key. It returns neither a key nor an error for a
// block that is to be skipped, and false for a block that has no private key.
type DeriveFunc func(*pem.Block) (key crypto.PublicKey, private bool, err error)

// ParseUsable is Parse for keys that are taken over: of a JWKS with keys that a key set can have, it leaves out those of kty AKP and OKP.
// Kubernetes lists ML-DSA keys beside the others.
//
// A PEM file may hold private keys if there is a derive, which gets every block first. Then errors name no label, which in a damaged
// file may be part of a key.
func ParseUsable(source string, data []byte, derive DeriveFunc) ([]keystore.VerificationKey, []Left, error) {
	keys, left, err := parse(data, derive)
	if err == nil {
		keys, err = distinct(keys)
	}
	if err != nil {
		return nil, nil, named(source, err)
	}
	return keys, left, nil
}

func named(source string, err error) error {
	return fmt.Errorf("read public keys from %s: %w", source, err)
}

func distinct(keys []keystore.VerificationKey) ([]keystore.VerificationKey, error) {
	seen := map[keystore.KeyID]keystore.VerificationKey{}
	list := keys[:0]
	for _, k := range keys {
		was, twice := seen[k.ID()]
		if twice && !was.Equal(k) {
			return nil, fmt.Errorf("two different keys have the kid %q", k.ID())
		}
		if !twice {
			seen[k.ID()], list = k, append(list, k)
		}
	}
	return list, nil
}

func parse(data []byte, derive DeriveFunc) (keys []keystore.VerificationKey, left []Left, err error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // editors of Windows begin a file with it
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(data) > MaxSize:
		return nil, nil, fmt.Errorf("it is larger than %d bytes", MaxSize)
	case len(trimmed) == 0:
		return nil, nil, errors.New("it is empty")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return nil, nil, errors.New("it is UTF-16; save it as UTF-8")
	case trimmed[0] == '{':
		return parseJSON(trimmed)
	}
	keys, err = parsePEM(data, derive)
	return keys, nil, err
}

func parsePEM(data []byte, derive DeriveFunc) ([]keystore.VerificationKey, error) {
	var keys []keystore.VerificationKey
	_, err := keypem.Each(data, func(n int, block *pem.Block) error {
		k, err := fromBlock(block, derive)
		switch {
		case err != nil && derive == nil:
			return fmt.Errorf("PEM block %d (%s): %w", n, printable(block.Type), err)
		case err != nil:
			return fmt.Errorf("PEM block %d: %w", n, err)
		case k != nil:
			keys = append(keys, *k)
		}
		return nil
	})
	if err == nil && len(keys) == 0 {
		err = errors.New("it holds neither a PEM block with a key nor a JWK or JWKS")
	}
	return keys, err
}

// fromBlock returns nil for a block that is to be skipped.
func fromBlock(block *pem.Block, derive DeriveFunc) (*keystore.VerificationKey, error) {
	var key crypto.PublicKey
	var private bool
	var err error
	if derive != nil {
		key, private, err = derive(block)
	}
	if !private {
		key, err = keypem.PublicKey(block)
	}
	if key == nil || err != nil {
		return nil, err
	}
	k, err := keystore.NewPublic(key)
	return &k, err
}

// HasCertificate reports whether a PEM block of data is a certificate. Parse takes its key, as kube-apiserver does, but a
// certificate that an operator gives may be that of a web server or of a CA.
func HasCertificate(data []byte) (has bool) {
	_, _ = keypem.Each(data, func(_ int, block *pem.Block) error { // Parse reports what is wrong with data
		_, err := x509.ParseCertificate(block.Bytes)
		has = has || err == nil
		return nil
	})
	return has
}

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones
// short: a computed kid just fits.
func printable(s string) string { return text.OneLine(s, 64) }
