package listen

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func devCA(t *testing.T, dir string) *x509.Certificate {
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

func TestLoadDevServes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dev")
	hosts := []string{"oidc.localhost", "*.oidc.localhost"}
	f, err := LoadDev(dir, hosts, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	address, _ := start(t, Config{Handler: okHandler, Certificates: f})
	roots := (&authority{cert: devCA(t, dir)}).pool()
	for _, name := range []string{"oidc.localhost", "prod-a.oidc.localhost", "localhost", "127.0.0.1", "::1"} {
		if _, _, err := get(t, "https://"+address, &tls.Config{RootCAs: roots, ServerName: name}, true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
func TestDevCAIsConfinedToItsNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadDev(dir, []string{"oidc.localhost", "*.dev.example"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	keys, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	ca := devCA(t, dir)
	signer := devKey{Signer: keys.PrivateKey.(crypto.Signer)}
	for name, want := range map[string]bool{
		"oidc.localhost": true, "a.dev.example": true, "127.0.0.1": true, "::1": true, "localhost": true,
		"bank.example.com": false, "example": false, "xoidc.localhost.example": false, "notdev.example": false,
		"127.0.0.2": false, "192.0.2.1": false, "2001:db8::1": false, "*.example": false,
	} {
		der, _, err := newDevLeaf(ca, signer, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: (&authority{cert: ca}).pool()})
		if (err == nil) != want {
			t.Errorf("%s: verified: %v (%v), want %v", name, err == nil, err, want)
		}
	}
	checkNoSubordinate(t, &authority{cert: ca, key: signer})
	if !ca.PermittedDNSDomainsCritical || ca.MaxPathLen != 0 || !ca.MaxPathLenZero || ca.NotAfter.Sub(ca.NotBefore) > devLifetime+time.Hour {
		t.Errorf("got %+v", ca)
	}
}

// checkNoSubordinate wants path length 0 to bite.
func checkNoSubordinate(t *testing.T, ca *authority) {
	t.Helper()
	sub := newAuthority(t, "subordinate", ca)
	leaf := sub.leaf(t, "oidc.localhost")
	_, err := leaf.cert.Verify(x509.VerifyOptions{Roots: ca.pool(), Intermediates: sub.pool()})
	if err == nil {
		t.Error("the development CA can make further CAs")
	}
}

func TestLoadDevReusesAndRenews(t *testing.T) {
	now := time.Now()
	hosts := []string{"oidc.localhost"}
	for _, tc := range []struct {
		name  string
		hosts []string
		later time.Duration
		spoil string // file to remove
		same  bool
	}{
		{"at once", hosts, 0, "", true},
		{"fewer hosts", nil, 0, "", true},
		{"after five days", hosts, 5 * 24 * time.Hour, "", true},
		{"in the last day", hosts, 6*24*time.Hour + time.Hour, "", false},
		{"after its end", hosts, 30 * 24 * time.Hour, "", false},
		{"clock set back", hosts, -time.Hour, "", false},
		{"another host", append(hosts, "b.localhost"), 0, "", false},
		{"no CA", hosts, 0, "ca.pem", false},
		{"no key", hosts, 0, "tls.key", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dev")
			first, err := LoadDev(dir, hosts, now)
			if err != nil {
				t.Fatal(err)
			}
			if tc.spoil != "" {
				os.Remove(filepath.Join(dir, tc.spoil))
			}
			second, err := LoadDev(dir, tc.hosts, now.Add(tc.later))
			if err != nil {
				t.Fatal(err)
			}
			if same := string(first.leafOf(0)) == string(second.leafOf(0)); same != tc.same {
				t.Errorf("reused: %v, want %v", same, tc.same)
			}
		})
	}
}

func TestLoadDevRefuses(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := LoadDev(open, nil, time.Now())
	checkSentence(t, err, "chmod it to 0700")
	for _, host := range []string{"192.0.2.1", "", "*."} {
		_, err = LoadDev(t.TempDir(), []string{host}, time.Now())
		checkSentence(t, err, "development CA")
	}
}
