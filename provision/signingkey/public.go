package signingkey

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/keypost/keypost/keystore"
)

// PublicHalf derives the verification keys of a PEM file that holds private keys (PKCS#1, PKCS#8, SEC 1), in several
// blocks if need be; public blocks beside them are read too. Errors name source, the block and the reason, and never
// a byte of a key.
func PublicHalf(source string, data []byte) ([]keystore.VerificationKey, error) {
	keys, err := publicHalf(data)
	if err != nil {
		return nil, fmt.Errorf("read signing keys from %s: %w", source, err)
	}
	return keys, nil
}

func publicHalf(data []byte) ([]keystore.VerificationKey, error) {
	if len(data) > keystore.MaxMaterial {
		return nil, fmt.Errorf("it is larger than %d bytes", keystore.MaxMaterial)
	}
	var keys []keystore.VerificationKey
	seen := map[keystore.KeyID]bool{}
	n := 1
	for ; ; n++ {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if bytes.Count(data[:len(data)-len(rest)], begin) > 1 {
			return nil, fmt.Errorf("PEM block %d: %w", n, errDamaged) // pem.Decode passes over it without a word
		}
		data = rest
		if block.Type == "EC PARAMETERS" {
			continue // openssl writes the curve as a block of its own before the key
		}
		k, err := fromBlock(block)
		if err != nil {
			return nil, fmt.Errorf("PEM block %d: %w", n, err)
		}
		if !seen[k.ID()] {
			seen[k.ID()], keys = true, append(keys, k)
		}
	}
	if bytes.Contains(data, begin) {
		return nil, fmt.Errorf("PEM block %d: %w", n, errDamaged)
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no PEM block with a key")
	}
	return keys, nil
}

var (
	begin      = []byte("-----BEGIN")
	errDamaged = errors.New("it is damaged (check its first and last line and its base64)")
)

func fromBlock(block *pem.Block) (keystore.VerificationKey, error) {
	switch {
	case block.Headers["DEK-Info"] != "" || block.Type == "ENCRYPTED PRIVATE KEY":
		return keystore.VerificationKey{}, errors.New("it is encrypted; give the public key instead (openssl pkey -in FILE -pubout)")
	case block.Type == "OPENSSH PRIVATE KEY":
		return keystore.VerificationKey{}, errors.New("it is an OpenSSH key; give its public half as PEM instead (ssh-keygen -e -m PKCS8 -f FILE)")
	}
	if signer := parsePrivate(block.Bytes); signer != nil {
		return keystore.NewPublic(signer.Public())
	}
	if bytes.Contains([]byte(block.Type), []byte("PRIVATE")) {
		return keystore.VerificationKey{}, errors.New("it is labelled as a private key but is none that this program can read (PKCS#1, PKCS#8, SEC 1)")
	}
	return publicBlock(block)
}

// parsePrivate drops the parser's errors on purpose: they are of no use to the caller beside the sentence that the
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

func publicBlock(block *pem.Block) (keystore.VerificationKey, error) {
	keys, err := keystore.ParsePublicKeys("the block", pem.EncodeToMemory(block))
	if err != nil {
		return keystore.VerificationKey{}, errors.New("it is neither a private key nor a public key or certificate that this program can read")
	}
	return keys[0], nil
}
