//go:build e2e

package e2e

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	certs "github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
)

// authority is the one CA that everybody in this network trusts.
type authority struct {
	*certs.Authority
	dir  string
	file string // its certificate, PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{Authority: certs.Named(t, "keypost end-to-end test CA", nil), dir: t.TempDir()}
	a.file = filepath.Join(a.dir, "ca.crt")
	must(t, os.WriteFile(a.file, certs.ChainPEM(a.Authority), 0o600))
	return a
}

// issue makes a server certificate for host names and addresses and returns the files of certificate and key.
func (a *authority) issue(t *testing.T, name string, hosts ...string) (cert, key string) {
	t.Helper()
	return a.certify(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}}, keys.NewEC(), hosts...)
}

// certify is issue with a key of the caller's and what else the certificate says; its common name names the files.
func (a *authority) certify(t *testing.T, template *x509.Certificate, private crypto.Signer, hosts ...string) (cert, key string) {
	t.Helper()
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	name := template.Subject.CommonName
	cert, key = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(24 * time.Hour)
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	leaf := certs.CertifyKey(t, a.Authority, template, private)
	must(t, os.WriteFile(cert, certs.ChainPEM(leaf), 0o600))
	must(t, os.WriteFile(key, leaf.KeyPEM(t), 0o600))
	return cert, key
}

// client is an HTTPS client that trusts this authority only.
func (a *authority) client() *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool()}, ForceAttemptHTTP2: true}}
}

// trustAll writes the certificates of several files into one, and returns that with a client that trusts them.
func trustAll(t *testing.T, files ...string) (file string, client *http.Client) {
	t.Helper()
	var all []byte
	for _, f := range files {
		all = append(all, read(t, f)...)
	}
	file = filepath.Join(t.TempDir(), "all.pem")
	must(t, os.WriteFile(file, all, 0o600))
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(all) {
		t.Fatalf("%v hold no certificate", files)
	}
	return file, &http.Client{Timeout: patienceOfParties, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
}

func writePrivateKey(t *testing.T, file string, key crypto.Signer) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	writePEM(t, file, "PRIVATE KEY", der)
}

func writePublicKey(t *testing.T, file string, key crypto.Signer) {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	writePEM(t, file, "PUBLIC KEY", der)
}

func writePEM(t *testing.T, file, label string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}), 0o600))
}
