// Package chain is a server's certificate with its chain and key, judged before any client sees it: what some relying party
// would refuse is refused here.
package chain

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

// Chain is a certificate with its key that has passed every check. It does not change.
type Chain struct {
	TLS      tls.Certificate
	NotAfter time.Time // the first expiry in the chain
}

// Names returns the names that the leaf is for.
func (c *Chain) Names() []string {
	all := slices.Clone(c.TLS.Leaf.DNSNames)
	for _, a := range c.TLS.Leaf.IPAddresses {
		all = append(all, a.String())
	}
	return all
}

// Same reports whether both show clients the same certificates.
func (c *Chain) Same(other *Chain) bool {
	return slices.EqualFunc(c.TLS.Certificate, other.TLS.Certificate, slices.Equal[[]byte])
}

// Load reads and checks the PEM files of a chain, leaf first, and of the leaf's key. The zero time as now means that it is not known: then
// nothing is refused for its dates. Its errors name the fault and the remedy in one sentence, and never quote what the files hold.
func Load(cert, key string, now time.Time) (*Chain, error) {
	pair, err := read(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%w; give the PEM chain, leaf first, and the leaf's key", err)
	}
	return Check(pair, now)
}

// Check checks the chain of a certificate that has its key. Now is as with Load.
func Check(pair tls.Certificate, now time.Time) (*Chain, error) {
	chain, err := parse(pair.Certificate)
	if err == nil {
		err = checkOrder(chain)
	}
	if err == nil {
		err = checkTimes(chain, now)
	}
	if err != nil {
		return nil, err
	}
	first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return &Chain{TLS: pair, NotAfter: first.NotAfter}, nil
}

// MaxPEM bounds a file, in bytes. A chain of four RSA-4096 certificates is 9 KiB.
const MaxPEM = 1 << 20

func read(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := regular.Read(certFile, MaxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regular.Read(keyFile, MaxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key) // checks that the key matches
}

func parse(der [][]byte) ([]*x509.Certificate, error) {
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

// checkTimes passes everything at the zero time.
func checkTimes(chain []*x509.Certificate, now time.Time) error {
	for i, c := range chain {
		if now.IsZero() {
			break
		}
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
