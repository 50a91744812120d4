package listen

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
)

func TestLoadFilesRefuses(t *testing.T) {
	root := authority.Named(t, "root", nil)
	outer := authority.Named(t, "outer", root)
	inner := authority.Named(t, "inner", outer)
	leaf := inner.Leaf(t, "oidc.example.com", "*.oidc.example.com")
	stranger := authority.Named(t, "stranger", nil)
	namesake := authority.Named(t, "inner", nil)                                  // the right name, another key
	renamed := authority.CertifyKey(t, outer, authority.CA("renamed"), inner.Key) // the right key, another name
	expired := leafUntil(t, inner, time.Now().Add(-time.Minute), "oidc.example.com")
	early := leafUntil(t, inner, time.Now().Add(25*time.Hour), "oidc.example.com")
	stale := authority.Certify(t, root, &x509.Certificate{
		Subject: outer.Cert.Subject, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})
	underStale := stale.Leaf(t, "oidc.example.com")

	type chain []*authority.Authority
	for _, tc := range []struct {
		name  string
		chain chain
		key   *authority.Authority
		hosts []string
		want  string // part of the error; "" means good
	}{
		{"full chain", chain{leaf, inner, outer}, leaf, []string{"oidc.example.com", "a.oidc.example.com", "*.oidc.example.com"}, ""},
		{"chain with its root", chain{leaf, inner, outer, root}, leaf, nil, ""},
		{"only leaf", chain{leaf}, leaf, []string{"OIDC.example.com"}, ""},
		{"intermediates swapped", chain{leaf, outer, inner}, leaf, nil, `certificate 2 of 3 ("outer") did not sign the one before it`},
		{"leaf last", chain{inner, leaf}, inner, nil, `certificate 2 of 2 ("oidc.example.com") did not sign`},
		{"gap", chain{leaf, outer}, leaf, nil, "certificate 2 of 2"},
		{"leaf twice", chain{leaf, leaf, inner}, leaf, nil, "certificate 2 of 3 repeats certificate 1"},
		{"root twice", chain{leaf, inner, outer, root, root}, leaf, nil, "certificate 5 of 5 repeats certificate 4"},
		{"stranger at the end", chain{leaf, inner, outer, stranger}, leaf, nil, `certificate 4 of 4 ("stranger")`},
		{"namesake with another key", chain{leaf, namesake}, leaf, nil, `certificate 2 of 2 ("inner")`},
		{"key under another name", chain{leaf, renamed}, leaf, nil, `certificate 2 of 2 ("renamed")`},
		{"expired leaf", chain{expired, inner}, expired, nil, "expired at "},
		{"expired intermediate", chain{underStale, stale}, underStale, nil, `certificate 2 of 2 ("outer") expired at `},
		{"not yet valid", chain{early, inner}, early, nil, "is not valid before "},
		{"key of another", chain{leaf, inner}, inner, nil, "private key does not match"},
		{"host not covered", chain{leaf}, leaf, []string{"oidc.example.com", "other.example.com"}, `"other.example.com"`},
		{"wildcard is one label", chain{leaf}, leaf, []string{"a.b.oidc.example.com"}, `"a.b.oidc.example.com"`},
		{"wildcard host needs a wildcard", chain{leaf}, leaf, []string{"*.example.com"}, `"*.example.com"`},
		{"address not covered", chain{leaf}, leaf, []string{"192.0.2.1"}, `"192.0.2.1"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := writePair(t, t.TempDir(), "tls", tc.chain...)
			writeFile(t, p.Key, tc.key.KeyPEM(t))
			_, err := LoadFiles([]Pair{p}, tc.hosts)
			checkSentence(t, err, tc.want)
			if err != nil && leaks(err.Error(), tc.key.KeyPEM(t)) {
				t.Errorf("the error quotes the key: %v", err)
			}
		})
	}
}

// checkSentence wants an error that contains part and stays on one line.
func checkSentence(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Errorf("got error %v, want none", err)
	case part != "" && err == nil:
		t.Errorf("got no error, want one with %q", part)
	case part != "" && (!strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n")):
		t.Errorf("got error %q, want one line with %q", err, part)
	}
}

// leaks reports whether text holds 12 characters in a row of the key's base64.
func leaks(text string, keyPEM []byte) bool {
	for line := range strings.Lines(string(keyPEM)) {
		line = strings.TrimSpace(line)
		if _, err := base64.StdEncoding.DecodeString(line); err != nil || len(line) < 12 {
			continue
		}
		for i := range len(line) - 11 {
			if strings.Contains(text, line[i:i+12]) {
				return true
			}
		}
	}
	return false
}

func TestLoadFilesNeverQuotesAKey(t *testing.T) {
	root := authority.Named(t, "root", nil)
	leaf := root.Leaf(t, "oidc.example.com")
	good, key := authority.ChainPEM(leaf), leaf.KeyPEM(t)
	for _, tc := range []struct {
		name      string
		cert, key []byte
	}{
		{"swapped", key, good},
		{"key in both", key, key},
		{"broken key", good, append(key[:len(key)/2:len(key)/2], "\n-----END PRIVATE KEY-----\n"...)},
		{"key without armour", good, key[28 : len(key)-26]},
		{"empty key", good, nil},
		{"empty certificate", nil, key},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			p := Pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
			writeFile(t, p.Cert, tc.cert)
			writeFile(t, p.Key, tc.key)
			_, err := LoadFiles([]Pair{p}, nil)
			checkSentence(t, err, "tls.crt")
			if err != nil && leaks(err.Error(), key) {
				t.Errorf("the error quotes the key: %v", err)
			}
		})
	}
}

func TestLoadFilesWantsFiles(t *testing.T) {
	p := writePair(t, t.TempDir(), "tls", authority.Named(t, "root", nil).Leaf(t, "oidc.example.com"))
	_, err := LoadFiles([]Pair{p, p}, nil)
	checkSentence(t, err, "given twice")
	p.Key += ".missing"
	_, err = LoadFiles([]Pair{p}, nil)
	checkSentence(t, err, "tls.key.missing")
}

// A leaf without its intermediate is not an error, since a root may have signed it itself; anyone who checks is told.
func TestAlone(t *testing.T) {
	root := authority.Named(t, "root", nil)
	inner := authority.Named(t, "inner", root)
	leaf := inner.Leaf(t, "a.example")
	selfSigned := authority.Certify(t, nil, &x509.Certificate{DNSNames: []string{"b.example"}, Subject: pkix.Name{CommonName: "b"}})
	dir := t.TempDir()
	alone, whole, own := writePair(t, dir, "alone", leaf), writePair(t, dir, "whole", leaf, inner), writePair(t, dir, "own", selfSigned)
	if got := mustLoad(t, nil, whole, alone, own).Alone(); !slices.Equal(got, []string{alone.Cert}) {
		t.Errorf("%q; want %s", got, alone.Cert)
	}
}
