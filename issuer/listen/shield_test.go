package listen

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/test/authority"
)

const (
	oldSecret = "the-old-secret-0123456789"
	newSecret = "the-new-secret-0123456789"
)

func secretFiles(t *testing.T) []string {
	t.Helper()
	files := []string{filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")}
	writeFile(t, files[0], []byte(oldSecret+"\n"))
	writeFile(t, files[1], []byte(newSecret))
	return files
}

// clientOf is a client certificate of a CA.
func clientOf(t *testing.T, ca *authority.Authority, usage x509.ExtKeyUsage) []tls.Certificate {
	t.Helper()
	c := authority.Certify(t, ca, &x509.Certificate{Subject: pkix.Name{CommonName: "cdn"}, ExtKeyUsage: []x509.ExtKeyUsage{usage}})
	return []tls.Certificate{c.Pair()}
}

func TestShield(t *testing.T) {
	files, ca, other := secretFiles(t), authority.Named(t, "cdn", nil), authority.Named(t, "other", nil)
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, caFile, authority.ChainPEM(ca))
	mine, strangers, server := clientOf(t, ca, x509.ExtKeyUsageClientAuth), clientOf(t, other, x509.ExtKeyUsageClientAuth), clientOf(t, ca, x509.ExtKeyUsageServerAuth)
	inner := []*authority.Authority{authority.Named(t, "a", ca)}
	for _, name := range []string{"b", "c", "d"} {
		inner = append(inner, authority.Named(t, name, inner[len(inner)-1]))
	}
	long := func(n int) []tls.Certificate { // with n certificates of CAs
		certs := clientOf(t, inner[n-1], x509.ExtKeyUsageClientAuth)
		for i := range n {
			certs[0].Certificate = append(certs[0].Certificate, inner[n-1-i].Cert.Raw)
		}
		return certs
	}
	byHeader := ShieldConfig{Header: "x-origin-secret", SecretFiles: files}
	byCert := ShieldConfig{ClientCAFile: caFile}
	both := ShieldConfig{Header: "X-Origin-Secret", SecretFiles: files, ClientCAFile: caFile}
	refusal := http.Header{
		"Cache-Control": {"no-store"}, "Content-Length": {"33"}, "Content-Type": {"text/plain; charset=utf-8"},
		"Strict-Transport-Security": {"max-age=31536000"}, "X-Content-Type-Options": {"nosniff"},
	}
	for _, tt := range []struct {
		name   string
		shield ShieldConfig
		header []string
		certs  []tls.Certificate
		code   int    // 0: no handshake
		lacks  string // what the metric says; empty: header
	}{
		{"the new secret", byHeader, []string{newSecret}, nil, 200, ""},
		{"the old secret", byHeader, []string{oldSecret}, nil, 200, ""},
		{"none", byHeader, nil, nil, 403, ""},
		{"empty", byHeader, []string{""}, nil, 403, ""},
		{"a part", byHeader, []string{newSecret[:20]}, nil, 403, ""},
		{"more", byHeader, []string{newSecret + "x"}, nil, 403, ""},
		{"two, the second right", byHeader, []string{"guess", newSecret}, nil, 403, ""},
		{"two, the first right", byHeader, []string{newSecret, "guess"}, nil, 403, ""},
		{"two in one", byHeader, []string{"guess, " + newSecret}, nil, 403, ""},
		{"a certificate", byCert, nil, mine, 200, ""},
		{"a chain of four", byCert, nil, long(3), 200, ""},
		{"a chain of five", byCert, nil, long(4), 0, ""},
		{"no certificate", byCert, nil, nil, 403, "certificate"},
		{"a stranger's", byCert, nil, strangers, 0, ""},
		{"a server's", byCert, nil, server, 0, ""},
		{"a secret in its place", byCert, []string{newSecret}, nil, 403, "certificate"},
		{"both", both, []string{newSecret}, mine, 200, ""},
		{"the secret of both", both, []string{newSecret}, nil, 403, "certificate"},
		{"the certificate of both", both, nil, mine, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shield, err := NewShield(tt.shield)
			if err != nil {
				t.Fatal(err)
			}
			s := startSite(t, Config{Shield: shield})
			for _, http2 := range []bool{false, true} { // what a client offers
				conf := s.clientTLS()
				if tt.certs != nil { // sent whatever CAs the server names
					conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tt.certs[0], nil }
				}
				client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2}}
				t.Cleanup(client.CloseIdleConnections)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header["X-Origin-Secret"] = tt.header
				res, err := client.Do(req)
				if (err != nil) != (tt.code == 0) {
					t.Fatalf("HTTP/2 %v: %v", http2, err)
				}
				if err != nil {
					continue
				}
				body, _ := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if res.StatusCode != tt.code {
					t.Errorf("HTTP/2 %v: %s %v %s, want %d", http2, res.Status, res.Header, body, tt.code)
				}
				if res.Header.Del("Date"); tt.code == 403 && !reflect.DeepEqual(res.Header, refusal) { // as every other refusal has them
					t.Errorf("HTTP/2 %v: headers %v, want %v", http2, res.Header, refusal)
				}
			}
			want, lacks := map[int]float64{403: 2}[tt.code], "header"
			if tt.lacks != "" {
				lacks = tt.lacks
			}
			if refused := testutil.ToFloat64(shield.refused.WithLabelValues(lacks)); refused != want {
				t.Errorf("%v requests counted that lack the %s, want %v", refused, lacks, want)
			}
		})
	}
}

func TestShieldErrors(t *testing.T) {
	dir := t.TempDir()
	files := 0
	file := func(text string) string {
		files++
		path := filepath.Join(dir, strconv.Itoa(files))
		writeFile(t, path, []byte(text))
		return path
	}
	good := file(newSecret)
	long := strings.Repeat("0123456789abcdef", 256) // 4,096 characters
	for text, secret := range map[string]string{"0123456789abcdef": "0123456789abcdef", newSecret + "\r\n": newSecret, newSecret + "\n\n": newSecret, long: long} {
		s, err := NewShield(ShieldConfig{Header: "X-A", SecretFiles: []string{file(text)}})
		if err != nil || !s.knows(secret) || s.knows(text) != (text == secret) {
			t.Errorf("a secret of %d characters in a file of %d: %v", len(secret), len(text), err)
		}
	}
	for name, tt := range map[string]struct {
		c    ShieldConfig
		want string
	}{
		"nothing":            {ShieldConfig{}, "needs a header with its secret"},
		"header alone":       {ShieldConfig{Header: "X-A"}, "at least one file"},
		"secret alone":       {ShieldConfig{SecretFiles: []string{good}}, "needs its name"},
		"a common header":    {ShieldConfig{Header: "user-agent", SecretFiles: []string{good}}, "no header that only a CDN sends"},
		"no header name":     {ShieldConfig{Header: "X A", SecretFiles: []string{good}}, "no header that only a CDN sends"},
		"with its name":      {ShieldConfig{Header: "x-a", SecretFiles: []string{file("X-A: 0123456789abcdef")}}, "write the value alone"},
		"in quotes":          {ShieldConfig{Header: "X-A", SecretFiles: []string{file(`"0123456789abcdef"`)}}, "write the value alone"},
		"short secret":       {ShieldConfig{Header: "X-A", SecretFiles: []string{good, file("short")}}, "one line of 16"},
		"15 characters":      {ShieldConfig{Header: "X-A", SecretFiles: []string{file("0123456789abcde")}}, "one line of 16"},
		"two lines":          {ShieldConfig{Header: "X-A", SecretFiles: []string{file(newSecret + "\n" + oldSecret)}}, "one line of 16"},
		"space behind it":    {ShieldConfig{Header: "X-A", SecretFiles: []string{file(newSecret + " ")}}, "one line of 16"},
		"a carriage return":  {ShieldConfig{Header: "X-A", SecretFiles: []string{file(newSecret + "\r" + oldSecret)}}, "one line of 16"},
		"too long":           {ShieldConfig{Header: "X-A", SecretFiles: []string{file(long + "0")}}, "larger than 4096 bytes"},
		"no file":            {ShieldConfig{Header: "X-A", SecretFiles: []string{dir + "/none"}}, "read the value of X-A"},
		"no CA file":         {ShieldConfig{ClientCAFile: dir + "/none"}, "read the CA of client certificates"},
		"a CA file with key": {ShieldConfig{ClientCAFile: good}, "holds no PEM certificate"},
	} {
		if _, err := NewShield(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), newSecret) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

// Every secret opens, in whatever order they are, and nothing else does.
func TestEverySecretOpens(t *testing.T) {
	c := ShieldConfig{Header: "X-Origin-Secret"}
	secrets := []string{strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)}
	for _, s := range secrets {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		c.SecretFiles = append(c.SecretFiles, file)
	}
	shield, err := NewShield(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if !shield.knows(s) {
			t.Errorf("%s does not open", s)
		}
	}
	for _, s := range []string{"", strings.Repeat("d", 16), secrets[0] + "a", secrets[0][1:]} {
		if shield.knows(s) {
			t.Errorf("%q opens", s)
		}
	}
}
