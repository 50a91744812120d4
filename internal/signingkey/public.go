package signingkey

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// PublicHalf reads verification keys as [pubkey.ParseUsable] does, and also derives those of private keys in PEM (PKCS#1,
// PKCS#8, SEC 1). It reports whether there was one, and which keys of a JWKS it left out. Errors name source, the block and the
// reason, and never a byte of a key.
func PublicHalf(source string, data []byte) (keys []keystore.VerificationKey, left []pubkey.Left, private bool, err error) {
	keys, left, err = pubkey.ParseUsable(source, data, func(block *pem.Block) (crypto.PublicKey, bool, error) {
		key, recognised, err := derive(block)
		private = private || key != nil
		return key, recognised, err
	})
	return keys, left, private, err
}

// derive is a [pubkey.DeriveFunc].
func derive(block *pem.Block) (key crypto.PublicKey, private bool, err error) {
	switch {
	case block.Type == "EC PARAMETERS":
		return nil, true, nil // openssl writes the curve as a block of its own before the key
	case block.Headers["DEK-Info"] != "" || block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, true, errors.New("it is encrypted; give the public key instead (openssl pkey -in FILE -pubout)")
	case block.Type == "OPENSSH PRIVATE KEY":
		return nil, true, errors.New("it is an OpenSSH key, which no cluster signs with")
	}
	if signer := parsePrivate(block.Bytes); signer != nil {
		return signer.Public(), true, nil
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return nil, true, errors.New("it is labelled as a private key but is none that this program can read (PKCS#1, PKCS#8, SEC 1)")
	}
	return nil, false, nil
}

// parsePrivate drops the parser's errors on purpose: they do not help the caller beside the sentence that the
// block is unreadable, and they describe the inside of a private key.
func parsePrivate(der []byte) crypto.Signer {
	if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return k
	}
	if k, err := x509.ParseECPrivateKey(der); err == nil {
		return k
	}
	if k, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if signer, ok := k.(crypto.Signer); ok {
			return signer
		}
	}
	return nil
}
