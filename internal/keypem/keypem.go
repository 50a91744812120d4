// Package keypem reads PEM files with keys, block by block. A damaged block is an error; package encoding/pem skips it, and
// its key would be missing silently.
package keypem

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/keypost/keypost/internal/privatekey"
)

// errDamaged is wrapped by the error of a block that cannot be decoded.
var errDamaged = errors.New("it is damaged (check its first and last line and its base64)")

// Each calls use for each block in data, numbered from 1, until use returns an error. It returns how many blocks there
// are. The error of a damaged block wraps errDamaged, and also [privatekey.ErrFound] if it has that label.
func Each(data []byte, use func(n int, block *pem.Block) error) (blocks int, err error) {
	for n := 1; ; n++ {
		block, rest := pem.Decode(data)
		read := data[:len(data)-len(rest)]
		if block == nil {
			read = data
		}
		if begins := bytes.Count(read, []byte("-----BEGIN")); begins > 1 || begins > 0 && block == nil {
			return n, fmt.Errorf("PEM block %d: %w", n, damaged(read))
		}
		if block == nil {
			return n - 1, nil
		}
		if err := use(n, block); err != nil {
			return n, err
		}
		data = rest
	}
}

func damaged(text []byte) error {
	if privatekey.HasLabel(text) {
		return fmt.Errorf("%w; %w", privatekey.ErrFound, errDamaged)
	}
	return errDamaged
}

// PublicKey reads the public key in the DER of a block: PKIX, PKCS#1 or a certificate. The label of the block does not
// count: Kubernetes' keyutil.ParsePublicKeysPEM ignores it, and OpenShift writes PKIX bytes under "RSA PUBLIC KEY". The
// error for a block with the label of a private key wraps [privatekey.ErrFound].
func PublicKey(block *pem.Block) (crypto.PublicKey, error) {
	if bytes.Contains([]byte(block.Type), []byte("PRIVATE KEY")) {
		return nil, privatekey.ErrFound
	}
	if k, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil { // the form in documents comes first: it costs least
		return k, nil
	}
	if k, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		return k, nil
	}
	if c, err := x509.ParseCertificate(block.Bytes); err == nil {
		return c.PublicKey, nil
	}
	if name := otherType(block.Bytes); name != "" {
		return other(name), nil
	}
	return nil, errors.New("it is neither a public key that this program can read (PKIX, PKCS#1) nor a certificate")
}

// other stands for a public key of a type that this program cannot read. Its text is the name of the type.
type other string

func (o other) String() string { return string(o) }

// otherType names the type of a PKIX key that package x509 does not read; empty for what is unknown.
//
// Source: RFC 9881, section 2 (ML-DSA); RFC 8410, section 3 (Ed448).
func otherType(der []byte) string {
	var key struct {
		Algorithm pkix.AlgorithmIdentifier
		Bits      asn1.BitString
	}
	if rest, err := asn1.Unmarshal(der, &key); err != nil || len(rest) > 0 {
		return ""
	}
	return map[string]string{
		"2.16.840.1.101.3.4.3.17": "ML-DSA-44", "2.16.840.1.101.3.4.3.18": "ML-DSA-65", "2.16.840.1.101.3.4.3.19": "ML-DSA-87",
		"1.3.101.113": "Ed448",
	}[key.Algorithm.Algorithm.String()]
}
