package devca

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
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
	for _, file := range []string{"", "ca.pem", "ca-key.pem", "tls.crt", "tls.key"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", file, info.Mode())
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("got %v, want four files", left)
	}
}

// The attack: the laptop's CA key is stolen and signs for a bank.
func TestCAIsConfinedToItsNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Ensure(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	keys, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca := authorityIn(t, dir)
	caKey := keys.PrivateKey.(crypto.Signer)
	for name, want := range map[string]bool{
		"a.localhost": true, "127.0.0.1": true, "::1": true, "localhost": true,
		"bank.example.com": false, "example": false, "localhost.example": false, "notlocalhost": false,
		"127.0.0.2": false, "192.0.2.1": false, "2001:db8::1": false, "*.example": false,
	} {
		template := server(ca, []string{name}, nil)
		if ip := net.ParseIP(name); ip != nil {
			template = server(ca, nil, []net.IP{ip})
		}
		leaf, _, err := issue(template, ca, caKey)
		if err != nil {
			t.Fatal(err)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: pool(ca)})
		if (err == nil) != want {
			t.Errorf("%s: verified: %v (%v), want %v", name, err == nil, err, want)
		}
	}
	checkNoSubordinate(t, ca, caKey)
	if !ca.PermittedDNSDomainsCritical || ca.MaxPathLen != 0 || !ca.MaxPathLenZero || ca.NotAfter.Sub(ca.NotBefore) > lifetime+time.Hour {
		t.Errorf("got %+v", ca)
	}
}

// checkNoSubordinate wants path length 0 to bite.
func checkNoSubordinate(t *testing.T, ca *x509.Certificate, caKey crypto.Signer) {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "subordinate"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	sub, subKey, err := issue(template, ca, caKey)
	if err != nil {
		t.Fatal(err)
	}
	below, _, err := issue(server(ca, []string{localhost}, nil), sub, subKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := below.Verify(x509.VerifyOptions{Roots: pool(ca), Intermediates: pool(sub)}); err == nil {
		t.Error("the development CA can make further CAs")
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
		{"after its end", 30 * 24 * time.Hour, "", false},
		{"clock set back", -time.Hour, "", false},
		{"no CA", 0, "ca.pem", false},
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
