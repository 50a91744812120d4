// Package devca keeps a certificate authority for development in a directory, and a certificate of it for a server on
// loopback. Anyone who trusts the authority does not have to trust the laptop with the rest of the Internet: a critical name
// constraint (RFC 5280, section 4.2.1.10) confines it to the server's names.
package devca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/keypost/keypost/internal/durable"
)

const (
	lifetime = 7 * 24 * time.Hour
	renewal  = 24 * time.Hour // what is left of a lifetime when the certificates are replaced
)

// Ensure returns the PEM files of a certificate for "localhost" and the two loopback addresses, and of its key. It
// keeps them in dir (tls.crt, tls.key) with the authority that signed it (ca.pem for clients to trust, ca-key.pem), and
// makes dir if it has to. They live for seven days. With less than a day left, or when anything is wrong with them, all
// four are made anew and clients need the new ca.pem.
func Ensure(dir string, now time.Time) (cert, key string, err error) {
	if err := ownDir(dir); err != nil {
		return "", "", fmt.Errorf("prepare the development CA: %w", err)
	}
	if check(dir, now) != nil {
		if err := replace(dir, now); err != nil {
			return "", "", fmt.Errorf("make the development CA in %q: %w", dir, err)
		}
	}
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil
}

// ownDir makes dir, or checks that nobody else can put files into it.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("directory %q is writable for other users, chmod it to 0700", dir)
	}
	return nil
}

// check returns an error unless the files are good until the renewal is due.
func check(dir string, now time.Time) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	for _, at := range []time.Time{now, now.Add(renewal)} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, DNSName: localhost}); err != nil {
			return err
		}
	}
	return nil
}

func replace(dir string, now time.Time) error {
	ca, caKey, err := issue(authority(now), nil, nil)
	if err != nil {
		return err
	}
	leaf, leafKey, err := issue(server(ca, []string{localhost}, loopback()), ca, caKey)
	if err != nil {
		return err
	}
	// The chain ends with the authority itself: AWS takes the thumbprint of the last certificate of a chain.
	caPEM := pemBlock("CERTIFICATE", ca.Raw)
	chain := append(pemBlock("CERTIFICATE", leaf.Raw), caPEM...)
	w := durable.Writer{Owner: "keypost-dev"}
	for _, file := range []struct {
		name string
		key  crypto.Signer
		text []byte
	}{{"ca-key.pem", caKey, nil}, {"ca.pem", nil, caPEM}, {"tls.key", leafKey, nil}, {"tls.crt", nil, chain}} {
		if file.key != nil {
			der, err := x509.MarshalPKCS8PrivateKey(file.key)
			if err != nil {
				return err
			}
			file.text = pemBlock("PRIVATE KEY", der)
		}
		if err := w.Replace(filepath.Join(dir, file.name), file.text); err != nil {
			return err
		}
	}
	return nil
}

const localhost = "localhost"

func loopback() []net.IP { return []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback} }

// issue returns a certificate that parent's key has signed, and its own key; one without a parent signs itself.
func issue(template, parent *x509.Certificate, by crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func authority(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:                     pkix.Name{CommonName: "keypost development CA"},
		NotBefore:                   now.Add(-5 * time.Minute), // containers' clocks differ a little
		NotAfter:                    now.Add(lifetime),
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         []string{localhost}, // without a DNS name all of them would be open
		PermittedIPRanges: []*net.IPNet{
			{IP: loopback()[0], Mask: net.CIDRMask(32, 32)},
			{IP: loopback()[1], Mask: net.CIDRMask(128, 128)},
		},
	}
}

// server has the lifetime of the authority.
func server(ca *x509.Certificate, names []string, addresses []net.IP) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "keypost development server"},
		NotBefore:   ca.NotBefore,
		NotAfter:    ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    names,
		IPAddresses: addresses,
	}
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
