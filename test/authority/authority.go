// Package authority is a certificate authority for tests with servers of their own.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a CA that lasts for a day.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a key of its own.
func New(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "keypost test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	var err error
	a.cert, err = x509.ParseCertificate(a.sign(t, template, template, a.key))
	check(t, err)
	return a
}

// Pool returns a pool with the authority alone, for clients.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue writes tls.crt and tls.key for host names and IP addresses into dir, and the authority's own certificate as
// ca.pem. Every user may read them.
func (a *Authority) Issue(t *testing.T, dir string, hosts ...string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(23 * time.Hour),
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(t)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	write := func(name, label string, der []byte) {
		check(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}), 0o644)) //nolint:gosec // a key of a test, which a container of another user may read
	}
	write("tls.crt", "CERTIFICATE", a.sign(t, template, a.cert, key))
	write("tls.key", "PRIVATE KEY", private)
	write("ca.pem", "CERTIFICATE", a.cert.Raw)
}

func (a *Authority) sign(t *testing.T, template, parent *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	check(t, err)
	return der
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
