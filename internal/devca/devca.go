// Package devca keeps a certificate for development in a directory, for a server on loopback. It is its own authority and can sign no
// other: anyone who trusts it does not have to trust the laptop with the rest of the Internet.
package devca

import (
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
// keeps them in dir (tls.crt, tls.key, and ca.pem for clients to trust), and makes dir if it has to. They live for seven days. With less
// than a day left, or when anything is wrong with them, all are made anew and clients need the new ca.pem.
func Ensure(dir string, now time.Time) (cert, key string, err error) {
	if err := ownDir(dir); err != nil {
		return "", "", fmt.Errorf("prepare the development certificate: %w", err)
	}
	if check(dir, now) != nil {
		if err := replace(dir, now); err != nil {
			return "", "", fmt.Errorf("make the development certificate in %q: %w", dir, err)
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "keypost development server"},
		NotBefore:   now.Add(-5 * time.Minute), // containers' clocks differ a little
		NotAfter:    now.Add(lifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{localhost},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	w := durable.Writer{Owner: "keypost-dev"}
	served := pemBlock("CERTIFICATE", cert)
	for _, file := range []struct {
		name string
		text []byte
	}{{"ca.pem", served}, {"tls.key", pemBlock("PRIVATE KEY", der)}, {"tls.crt", served}} {
		if err := w.Replace(filepath.Join(dir, file.name), file.text); err != nil {
			return err
		}
	}
	return nil
}

const localhost = "localhost"

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
