package listen

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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
	devLifetime = 7 * 24 * time.Hour
	devRenewal  = 24 * time.Hour // what is left of a lifetime when it is made anew
)

// LoadDev is LoadFiles for a laptop: it keeps a certificate authority of its own in
// dir (ca.pem for clients to trust, ca-key.pem) and a certificate for hosts, for
// "localhost" and for the two loopback addresses (tls.crt, tls.key). They live for
// seven days; with less than a day left, or hosts that they do not cover, all four
// are made anew and clients must be given the new ca.pem.
//
// Whoever trusts ca.pem must not have to trust the laptop with the rest of the
// Internet: a critical name constraint (RFC 5280, section 4.2.1.10) confines the
// authority to those names.
func LoadDev(dir string, hosts []string, now time.Time) (*Files, error) {
	hosts, err := devHosts(hosts)
	if err != nil {
		return nil, err
	}
	if err := ownDir(dir); err != nil {
		return nil, fmt.Errorf("prepare the development CA: %w", err)
	}
	if f, err := loadDev(dir, hosts, now); err == nil {
		return f, nil // whatever else is wrong with the files, new ones mend it
	}
	if err := makeDev(dir, hosts, now); err != nil {
		return nil, fmt.Errorf("make the development CA in %q: %w", dir, err)
	}
	return loadDev(dir, hosts, now)
}

// devHosts adds what is always covered. "localhost" is more than a convenience: a
// constraint without any DNS name would leave all of them open.
func devHosts(hosts []string) ([]string, error) {
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

// loadDev takes the files over when they stay good for a while. Verification
// against ca.pem shows that the four belong together.
func loadDev(dir string, hosts []string, now time.Time) (*Files, error) {
	f, err := LoadFiles([]Pair{{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}}, hosts, now)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	soon := x509.VerifyOptions{Roots: roots, CurrentTime: now.Add(devRenewal)}
	if _, err := f.inUse.Load().certs[0].tls.Leaf.Verify(soon); err != nil {
		return nil, err
	}
	return f, nil
}

func makeDev(dir string, hosts []string, now time.Time) error {
	ca, caKey, err := newDevCA(hosts, now)
	if err != nil {
		return err
	}
	leaf, leafKey, err := newDevLeaf(ca, caKey, hosts)
	if err != nil {
		return err
	}
	// The chain ends with the authority itself: AWS takes the thumbprint of the
	// last certificate that it is shown.
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

type devKey struct {
	crypto.Signer
	pem []byte
}

func newDevKey() (devKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return devKey{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return devKey{key, pemBlock("PRIVATE KEY", der)}, err
}

func newDevCA(hosts []string, now time.Time) (*x509.Certificate, devKey, error) {
	key, err := newDevKey()
	if err != nil {
		return nil, key, err
	}
	template := &x509.Certificate{
		Subject:                     pkix.Name{CommonName: "keypost development CA"},
		NotBefore:                   now.Add(-5 * time.Minute), // containers' clocks differ a little
		NotAfter:                    now.Add(devLifetime),
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

// permittedDomains drops the addresses and the "*.": a constraint stands for a
// domain and all below it, there is no narrower form for a wildcard.
func permittedDomains(hosts []string) []string {
	var domains []string
	for _, h := range hosts {
		if net.ParseIP(h) == nil {
			domains = append(domains, strings.TrimPrefix(h, "*."))
		}
	}
	return domains
}

// newDevLeaf signs a certificate for hosts with the lifetime of the authority.
func newDevLeaf(ca *x509.Certificate, caKey devKey, hosts []string) ([]byte, devKey, error) {
	key, err := newDevKey()
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
