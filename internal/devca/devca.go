// Package devca keeps a certificate authority for development in a directory, and a certificate of it for a server on
// loopback. Whoever trusts the authority does not have to trust the laptop with the rest of the Internet: a critical name
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
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/durable"
)

const (
	lifetime = 7 * 24 * time.Hour
	renewal  = 24 * time.Hour // what is left of a lifetime when the certificates are replaced
)

// Ensure returns the PEM files of a certificate for hosts, "localhost" and the two loopback addresses, and of its key. It
// keeps them in dir (tls.crt, tls.key) with the authority that signed it (ca.pem for clients to trust, ca-key.pem), and
// makes dir if it has to. They live for seven days. With less than a day left, with hosts that they do not cover, or when
// anything else is wrong with them, all four are made anew and clients need the new ca.pem.
func Ensure(dir string, hosts []string, now time.Time) (cert, key string, err error) {
	hosts, err = withLoopback(hosts)
	if err != nil {
		return "", "", err
	}
	if err := ownDir(dir); err != nil {
		return "", "", fmt.Errorf("prepare the development CA: %w", err)
	}
	if check(dir, hosts, now) != nil {
		if err := replace(dir, hosts, now); err != nil {
			return "", "", fmt.Errorf("make the development CA in %q: %w", dir, err)
		}
	}
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil
}

// withLoopback adds the names that are always covered. "localhost" is more than a convenience: a constraint without any
// DNS name would leave all of them open.
func withLoopback(hosts []string) ([]string, error) {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, h := range hosts {
		h = strings.ToLower(h)
		if ip := net.ParseIP(h); ip != nil && !ip.Equal(net.IPv6loopback) && !ip.Equal(net.IPv4(127, 0, 0, 1)) {
			return nil, fmt.Errorf("make the development CA: it is for loopback addresses only, not for %s", h)
		}
		if strings.TrimPrefix(h, "*.") == "" {
			return nil, errors.New("make the development CA: a host name is empty")
		}
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all, nil
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

// check returns an error unless the files are good for hosts until the renewal is due.
func check(dir string, hosts []string, now time.Time) error {
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
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
			return err
		}
	}
	for _, h := range hosts {
		if net.ParseIP(h) == nil && !slices.Contains(pair.Leaf.DNSNames, h) {
			return fmt.Errorf("it is not for %s", h)
		}
	}
	return nil
}

func replace(dir string, hosts []string, now time.Time) error {
	ca, caKey, err := newCA(hosts, now)
	if err != nil {
		return err
	}
	leaf, leafKey, err := newLeaf(ca, caKey, hosts)
	if err != nil {
		return err
	}
	// The chain ends with the authority itself: AWS takes the thumbprint of the last certificate of a chain.
	caPEM := pemBlock("CERTIFICATE", ca.Raw)
	chain := append(pemBlock("CERTIFICATE", leaf), caPEM...)
	w := durable.Writer{Owner: "keypost-dev"}
	for _, file := range []struct {
		name string
		text []byte
	}{{"ca-key.pem", caKey.pem}, {"ca.pem", caPEM}, {"tls.key", leafKey.pem}, {"tls.crt", chain}} {
		if err := w.Replace(filepath.Join(dir, file.name), file.text); err != nil {
			return err
		}
	}
	return nil
}

type signer struct {
	crypto.Signer
	pem []byte
}

func newKey() (signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signer{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return signer{key, pemBlock("PRIVATE KEY", der)}, err
}

func newCA(hosts []string, now time.Time) (*x509.Certificate, signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, key, err
	}
	template := &x509.Certificate{
		Subject:                     pkix.Name{CommonName: "keypost development CA"},
		NotBefore:                   now.Add(-5 * time.Minute), // containers' clocks differ a little
		NotAfter:                    now.Add(lifetime),
		KeyUsage:                    x509.KeyUsageCertSign,
		ExtKeyUsage:                 []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid:       true,
		IsCA:                        true,
		MaxPathLenZero:              true,
		PermittedDNSDomainsCritical: true,
		PermittedDNSDomains:         permittedDomains(hosts),
		PermittedIPRanges: []*net.IPNet{
			{IP: net.IPv4(127, 0, 0, 1).To4(), Mask: net.CIDRMask(32, 32)},
			{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key.Signer)
	if err != nil {
		return nil, key, err
	}
	ca, err := x509.ParseCertificate(der)
	return ca, key, err
}

// permittedDomains drops the addresses and the "*.": a constraint is for a domain and all names below it, and there is no
// narrower form for a wildcard.
func permittedDomains(hosts []string) []string {
	var domains []string
	for _, h := range hosts {
		if net.ParseIP(h) == nil {
			domains = append(domains, strings.TrimPrefix(h, "*."))
		}
	}
	return domains
}

// newLeaf signs a certificate for hosts with the lifetime of the authority.
func newLeaf(ca *x509.Certificate, caKey signer, hosts []string) ([]byte, signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, key, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "keypost development server"},
		NotBefore:   ca.NotBefore,
		NotAfter:    ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey.Signer)
	return der, key, err
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
