// Package authority is a certificate authority for tests with servers of their own.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a CA, root or intermediate, or somebody else who has a certificate and its key.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// New makes a root.
func New(t testing.TB) *Authority {
	t.Helper()
	return Named(t, "keypost test CA", nil)
}

// Named makes a CA that parent signs, or a root when there is none.
func Named(t testing.TB, name string, parent *Authority) *Authority {
	t.Helper()
	return Certify(t, parent, CA(name))
}

// CA is the template of a CA's certificate.
func CA(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

// Certify signs template with parent for a new key on P-256, or with that key itself when parent is nil. A template without an end
// is valid from an hour ago for a day; one without a serial number has a random one.
func Certify(t testing.TB, parent *Authority, template *x509.Certificate) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return CertifyKey(t, parent, template, key)
}

// CertifyKey is Certify for a key that is there already.
func CertifyKey(t testing.TB, parent *Authority, template *x509.Certificate, key crypto.Signer) *Authority {
	t.Helper()
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	if parent == nil {
		parent = &Authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Cert, key.Public(), parent.Key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &Authority{cert, key}
}

// Leaf certifies a server of DNS names.
func (a *Authority) Leaf(t testing.TB, names ...string) *Authority {
	t.Helper()
	return Certify(t, a, &x509.Certificate{DNSNames: names})
}

// Pool returns a pool with only the authority, for clients.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}

// Pair is what a server or a client of TLS shows: its certificate, with others behind it, and its key.
func (a *Authority) Pair(chain ...*Authority) tls.Certificate {
	pair := tls.Certificate{Certificate: [][]byte{a.Cert.Raw}, PrivateKey: a.Key}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Cert.Raw)
	}
	return pair
}

// Issue writes tls.crt and tls.key for host names and IP addresses into dir, and the authority's own certificate as
// ca.pem. Every user may read them.
func (a *Authority) Issue(t testing.TB, dir string, hosts ...string) {
	t.Helper()
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	leaf := Certify(t, a, template)
	for name, text := range map[string][]byte{"tls.crt": ChainPEM(leaf), "tls.key": leaf.KeyPEM(t), "ca.pem": ChainPEM(a)} {
		check(t, os.WriteFile(filepath.Join(dir, name), text, 0o644)) //nolint:gosec // a key of a test, which a container of another user may read
	}
}

// KeyPEM is the key as PKCS #8 in PEM.
func (a *Authority) KeyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.Key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// ChainPEM is certificates in PEM, in this order.
func ChainPEM(chain ...*Authority) []byte {
	var text []byte
	for _, a := range chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})...)
	}
	return text
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
