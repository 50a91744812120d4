package devca

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authorityIn(t *testing.T, dir string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func pool(ca *x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca)
	return p
}

func TestServes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	cert, key, err := Ensure(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()
	roots := pool(authorityIn(t, dir))
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		c, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.Close()
	}
	for _, file := range []string{"", "ca.pem", "tls.crt", "tls.key"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", file, info.Mode())
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("got %v, want three files", left)
	}
}

// The attack: the laptop's key is stolen and signs for a bank.
func TestConfinedToItsNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	cert, key, err := Ensure(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := authorityIn(t, dir)
	for _, template := range []x509.Certificate{{DNSNames: []string{"bank.example.com"}}, {DNSNames: []string{"localhost"}}} {
		template.NotBefore, template.NotAfter = ca.NotBefore, ca.NotAfter
		der, err := x509.CreateCertificate(rand.Reader, &template, ca, pair.Leaf.PublicKey, pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		forged, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forged.Verify(x509.VerifyOptions{Roots: pool(ca)}); err == nil {
			t.Errorf("%v: what the key has signed is trusted", template.DNSNames)
		}
	}
	for name, want := range map[string]bool{"127.0.0.1": true, "::1": true, "localhost": true, "a.localhost": false, "bank.example.com": false, "127.0.0.2": false} {
		if err := ca.VerifyHostname(name); (err == nil) != want {
			t.Errorf("%s: %v, want good: %v", name, err, want)
		}
	}
	if ca.IsCA || ca.NotAfter.Sub(ca.NotBefore) > lifetime+time.Hour {
		t.Errorf("got %+v", ca)
	}
}

// leaf returns the certificate that is served.
func leaf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReusesAndRenews(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name  string
		later time.Duration
		spoil string // file to remove
		same  bool
	}{
		{"at once", 0, "", true},
		{"after five days", 5 * 24 * time.Hour, "", true},
		{"in the last day", 6*24*time.Hour + time.Hour, "", false},
		{"clock set back", -time.Hour, "", false},
		{"no key", 0, "tls.key", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dev")
			_, _, err := Ensure(dir, now)
			if err != nil {
				t.Fatal(err)
			}
			first := leaf(t, dir)
			if tc.spoil != "" {
				os.Remove(filepath.Join(dir, tc.spoil))
			}
			_, _, err = Ensure(dir, now.Add(tc.later))
			if err != nil {
				t.Fatal(err)
			}
			if same := leaf(t, dir) == first; same != tc.same {
				t.Errorf("reused: %v, want %v", same, tc.same)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	_, _, err := Ensure(open, time.Now())
	if err == nil || !strings.Contains(err.Error(), "chmod it to 0700") {
		t.Errorf("a directory that others may write: %v", err)
	}
}
