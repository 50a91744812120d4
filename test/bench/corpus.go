package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/bench/floor"
	"github.com/keypost/keypost/test/keys"
)

const host = floor.Host

// issuerName has the same length for every i, and so has every response: what is compared differs in nothing but
// the number of issuers.
func issuerName(i int) keystore.Name { return keystore.Name(fmt.Sprintf("c%06d", i)) }

func issuerURL(i int) string { return fmt.Sprintf("https://%s/%s", host, issuerName(i)) }

// writeCorpus writes the documents of n key sets with two RSA-2048 keys each into dir.
func writeCorpus(ctx context.Context, dir string, n int) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // public data
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return writeKeySet(dir, i)
		})
	}
	return g.Wait()
}

// The document of a key set with two keys, as keystore.Encode writes it. It is spelled here since keystore.New makes
// sure of every key's strength, which takes milliseconds and refuses most of what syntheticKey returns.
const (
	keySetDocument = `apiVersion: keypost.dev/v1
kind: KeySet
metadata:
  name: %s
spec:
  generation: 1
  issuers:
  - %s
  keys:
%s%s`
	keyDocument = `  - alg: RS256
    kid: %s
    promotedAt: "2026-01-02T03:00:00Z"
    publicKey: |
      %s
    publishedAt: "2026-01-02T03:00:00Z"
    state: active
`
)

func writeKeySet(dir string, i int) error {
	var keys [2]string
	for n := range keys {
		k, err := syntheticKey()
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKIXPublicKey(k.Key())
		if err != nil {
			return err
		}
		text := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
		keys[n] = fmt.Sprintf(keyDocument, k.ID(), strings.ReplaceAll(text, "\n", "\n      "))
	}
	data := fmt.Appendf(nil, keySetDocument, issuerName(i), issuerURL(i), keys[0], keys[1])
	if _, err := keystore.Parse(issuerName(i), data); err != nil {
		return err
	}
	return os.WriteFile(documentPath(dir, i), data, 0o600)
}

func documentPath(dir string, i int) string {
	return filepath.Join(dir, string(issuerName(i))+".yaml")
}

// syntheticKey has a random odd modulus of 2,048 bits. No signature of it can be made, and none is needed; its
// size is that of a real one, and it takes no second to find.
func syntheticKey() (keystore.VerificationKey, error) {
	modulus := make([]byte, 256)
	if _, err := rand.Read(modulus); err != nil {
		return keystore.VerificationKey{}, err
	}
	modulus[0] |= 0x80
	modulus[255] |= 1
	return keystore.NewPublic(&rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537})
}

// linkCorpus makes a directory of the first n documents of another. Writers replace a document and never change one,
// so that neither directory sees what happens to the other.
func linkCorpus(from, to string, n int) error {
	if err := os.Mkdir(to, 0o755); err != nil { //nolint:gosec // public data
		return err
	}
	for i := range n {
		if err := os.Link(documentPath(from, i), documentPath(to, i)); err != nil {
			return err
		}
	}
	return nil
}

// certificate is a self-signed one for host with a P-256 key: the cheapest handshake there is, against which
// everything else weighs most.
type certificate struct {
	certFile, keyFile string
	roots             *x509.CertPool
}

func newCertificate(dir string) (certificate, error) {
	c := certificate{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), x509.NewCertPool()}
	key := keys.NewEC()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return c, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	if err := os.WriteFile(c.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return c, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	c.roots.AppendCertsFromPEM(text)
	return c, os.WriteFile(c.certFile, text, 0o600)
}
