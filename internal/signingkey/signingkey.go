// Package signingkey generates signing keys, writes them to files and derives their public halves. It is the only
// package that holds private signing keys: others read files that may have one, recognise it, and hand the bytes over or
// refuse them. It promises that none of a key's bytes leaves it except into the file that was asked for: not in errors,
// not in formatted output, never over a file that exists.
package signingkey

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// Kind is a type and size of key that kube-apiserver signs with.
type Kind string

// The kinds that [Generate] makes. RSA is what every cloud accepts; Entra takes nothing else.
const (
	RSA2048 Kind = "rsa2048"
	RSA3072 Kind = "rsa3072"
	RSA4096 Kind = "rsa4096"
	P256    Kind = "p256"
	P384    Kind = "p384"
	P521    Kind = "p521"
)

// Kinds lists every kind, the most widely accepted first.
func Kinds() []Kind { return []Kind{RSA2048, RSA3072, RSA4096, P256, P384, P521} }

// Private is a private signing key. Formatting it prints a placeholder.
type Private struct {
	signer crypto.Signer // *rsa.PrivateKey or *ecdsa.PrivateKey
	public keystore.VerificationKey
}

// Format keeps the key out of logs and messages, whatever the verb.
func (Private) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "[signing key]") // a formatter has nowhere to report to
}

// Public returns the verification key.
func (p Private) Public() keystore.VerificationKey { return p.public }

// Sign signs a digest as [crypto.Signer] does: PKCS #1 v1.5 for RSA, ASN.1 for ECDSA.
func (p Private) Sign(_ context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	return p.signer.Sign(rand.Reader, digest, hash)
}

// Generate makes a key of one of the [Kinds]. Its kid does not begin with a hyphen, as one in 64 would: every command
// that takes a kid would read it as a flag.
func Generate(kind Kind) (Private, error) {
	for {
		signer, err := generate(kind)
		if err != nil {
			return Private{}, err
		}
		public, err := keystore.NewPublic(signer.Public())
		if err != nil {
			return Private{}, fmt.Errorf("generate %s key: %w", kind, err)
		}
		if !strings.HasPrefix(string(public.ID()), "-") {
			return Private{signer: signer, public: public}, nil
		}
	}
}

func generate(kind Kind) (crypto.Signer, error) {
	bits := map[Kind]int{RSA2048: 2048, RSA3072: 3072, RSA4096: 4096}
	curves := map[Kind]elliptic.Curve{P256: elliptic.P256(), P384: elliptic.P384(), P521: elliptic.P521()}
	if n, ok := bits[kind]; ok {
		return rsa.GenerateKey(rand.Reader, n)
	}
	if c, ok := curves[kind]; ok {
		return ecdsa.GenerateKey(c, rand.Reader)
	}
	return nil, fmt.Errorf("%q is not a kind of signing key: use one of %s", kind, kindList())
}

func kindList() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// privatePEM is the form that ccoctl writes for RSA and openssl for EC; kube-apiserver reads both (client-go,
// keyutil.ParsePrivateKeyPEM).
func (p Private) privatePEM() ([]byte, error) {
	switch k := p.signer.(type) {
	case *rsa.PrivateKey:
		return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}), nil
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			return nil, fmt.Errorf("encode signing key %s: its curve has no standard form", p.public.ID())
		}
		return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
	}
	return nil, errors.New("encode signing key: none was generated")
}
