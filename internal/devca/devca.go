// Package devca keeps a certificate for a server on loopback in a directory, for development. It signs itself and is no CA: whoever trusts
// it does not have to trust the laptop with the rest of the Internet.
package devca

import (
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

// Ensure returns the PEM files of a certificate for hosts, "localhost" and the two loopback addresses, and of its key. It keeps them in
// dir (tls.crt, tls.key, and ca.pem for clients to trust), and makes dir if it has to. They live for seven days. With less than a day
// left, with hosts that they do not cover, or when anything else is wrong with them, all three are made anew and clients need the new
// ca.pem.
func Ensure(dir string, hosts []string, now time.Time) (cert, key string, err error) {
	hosts, err = withLoopback(hosts)
	if err != nil {
		return "", "", err
	}
	if err := ownDir(dir); err != nil {
		return "", "", fmt.Errorf("prepare the development certificate: %w", err)
	}
	if check(dir, hosts, now) != nil {
		if err := replace(dir, hosts, now); err != nil {
			return "", "", fmt.Errorf("make the development certificate in %q: %w", dir, err)
		}
	}
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil
}

// withLoopback adds the names that are always covered.
func withLoopback(hosts []string) ([]string, error) {
	all := []string{"localhost", "127.0.0.1", "::1"}
	for _, h := range hosts {
		h = strings.ToLower(h)
		if ip := net.ParseIP(h); ip != nil && !ip.Equal(net.IPv6loopback) && !ip.Equal(net.IPv4(127, 0, 0, 1)) {
			return nil, fmt.Errorf("make the development certificate: it is for loopback addresses only, not for %s", h)
		}
		if strings.TrimPrefix(h, "*.") == "" {
			return nil, errors.New("make the development certificate: a host name is empty")
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "keypost development server"},
		NotBefore:             now.Add(-5 * time.Minute), // containers' clocks differ a little
		NotAfter:              now.Add(lifetime),
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, // no CA
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	w, cert := durable.Writer{Owner: "keypost-dev"}, pemBlock("CERTIFICATE", der)
	return errors.Join(
		w.Replace(filepath.Join(dir, "ca.pem"), cert),
		w.Replace(filepath.Join(dir, "tls.key"), pemBlock("PRIVATE KEY", keyDER)),
		w.Replace(filepath.Join(dir, "tls.crt"), cert))
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
