package listen

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/regular"
)

// certificate is a pair that has passed every check.
type certificate struct {
	tls      tls.Certificate
	notAfter time.Time // the first expiry in the chain
}

// loadPair reads and checks one pair. Its errors name the file, the fault and the
// remedy in one sentence, and never quote what the files hold.
func loadPair(p Pair, now time.Time) (*certificate, error) {
	pair, err := readPair(p)
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate %q with key %q: %w; give the PEM chain, leaf first, and the leaf's key", p.Cert, p.Key, err)
	}
	chain, err := parseChain(pair.Certificate)
	if err == nil {
		err = checkOrder(chain)
	}
	if err == nil {
		err = checkTimes(chain, now)
	}
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate %q: %w", p.Cert, err)
	}
	first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return &certificate{tls: pair, notAfter: first.NotAfter}, nil
}

// maxPEM bounds a file, in bytes. A chain of four RSA-4096 certificates is 9 KiB.
const maxPEM = 1 << 20

func readPair(p Pair) (tls.Certificate, error) {
	cert, err := regular.Read(p.Cert, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regular.Read(p.Key, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key) // checks that the key matches
}

// readPool reads the certificates of CAs. Wanted is what the file is to hold.
func readPool(file, wanted string) (*x509.CertPool, error) {
	text, err := regular.Read(file, maxPEM)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate; give %s", file, wanted)
	}
	return pool, nil
}

func parseChain(der [][]byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for i, d := range der {
		c, err := x509.ParseCertificate(d)
		if err != nil {
			return nil, fmt.Errorf("certificate %d of %d is broken: %w; fetch the chain from its CA again", i+1, len(der), err)
		}
		chain = append(chain, c)
	}
	return chain, nil
}

// checkOrder demands leaf, then each certificate's issuer. Browsers sort a chain
// themselves, AWS does not: it refuses the issuer when the order is wrong, a
// certificate is repeated or one does not belong.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func checkOrder(chain []*x509.Certificate) error {
	for i, c := range chain {
		if j := slices.IndexFunc(chain, c.Equal); j < i {
			return fmt.Errorf("certificate %d of %d repeats certificate %d, remove it", i+1, len(chain), j+1)
		}
		if i == 0 {
			continue
		}
		child := chain[i-1]
		if !bytes.Equal(child.RawIssuer, c.RawSubject) || child.CheckSignatureFrom(c) != nil {
			return fmt.Errorf("certificate %d of %d (%s) did not sign the one before it (%s); give the leaf, then each certificate's issuer, and nothing else",
				i+1, len(chain), title(c), title(child))
		}
	}
	return nil
}

func checkTimes(chain []*x509.Certificate, now time.Time) error {
	for i, c := range chain {
		if now.After(c.NotAfter) {
			return fmt.Errorf("certificate %d of %d (%s) expired at %s, renew it", i+1, len(chain), title(c), c.NotAfter.UTC().Format(time.RFC3339))
		}
		if now.Before(c.NotBefore) {
			return fmt.Errorf("certificate %d of %d (%s) is not valid before %s, wait or correct this machine's clock", i+1, len(chain), title(c), c.NotBefore.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// title names a certificate for a reader; quoted, for a CA may write anything.
func title(c *x509.Certificate) string {
	name := c.Subject.CommonName
	if len(c.DNSNames) > 0 {
		name = c.DNSNames[0]
	}
	return fmt.Sprintf("%q", cmp.Or(name, c.Subject.String(), "unnamed"))
}
