package listen

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a CA, root or intermediate, that tests issue from.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T, name string, parent *authority) *authority {
	t.Helper()
	return issue(t, parent, &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	})
}

// leaf issues a server certificate that is valid from an hour ago for a day.
func (a *authority) leaf(t *testing.T, names ...string) *authority {
	t.Helper()
	return issue(t, a, &x509.Certificate{DNSNames: names})
}

func (a *authority) leafUntil(t *testing.T, notAfter time.Time, names ...string) *authority {
	t.Helper()
	return issue(t, a, &x509.Certificate{DNSNames: names, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter})
}

// issue signs template with parent, or with its own key when there is none.
func issue(t *testing.T, parent *authority, template *x509.Certificate) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, parent, template, key)
}

// reissue makes another certificate for the key of an authority.
func reissue(t *testing.T, of *authority, name string, parent *authority) *authority {
	t.Helper()
	return sign(t, parent, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, of.key)
}

func sign(t *testing.T, parent *authority, template *x509.Certificate, key crypto.Signer) *authority {
	t.Helper()
	if template.NotAfter.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	if parent == nil {
		parent = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pemBlock("PRIVATE KEY", der)
}

func chainPEM(chain ...*authority) []byte {
	var text []byte
	for _, a := range chain {
		text = append(text, pemBlock("CERTIFICATE", a.cert.Raw)...)
	}
	return text
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writePair stores leaf, with its chain, as NAME.crt and NAME.key in dir.
func writePair(t *testing.T, dir, name string, chain ...*authority) Pair {
	t.Helper()
	p := Pair{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	writeFile(t, p.Cert, chainPEM(chain...))
	writeFile(t, p.Key, chain[0].keyPEM(t))
	return p
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
