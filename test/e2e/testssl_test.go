//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	programs "github.com/keypost/keypost/test/process"
)

// everything is what testssl.sh asks, but for what it asks in the name of old browsers.
var everything = []string{"--protocols", "--standard", "--pfs", "--server-preference", "--server-defaults", "--headers", "--vulnerable"}

// TestTLSOfThePublicListener has testssl.sh look at keypostd: exactly TLS 1.2 and 1.3, no suite in CBC mode, nothing that
// testssl.sh rates above LOW. An RSA certificate lets it ask more; make e2e-full asks with an ECDSA certificate, too.
func TestTLSOfThePublicListener(t *testing.T) {
	ca := newAuthority(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	keys := map[string]crypto.Signer{"rsa": private}
	if full {
		keys["ecdsa"] = newECKey(t)
	}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // testssl.sh waits more than it works
			cert, key := ca.certify(t, lasting90Days(name), key, cdnHost)
			found := testssl(t, ca, publicServer(t, cert, key), everything...)
			for _, f := range found {
				if f.Severity == "LOW" {
					t.Logf("%s, which is LOW: %s", f.ID, f.Finding)
				}
			}
			if wrong := judgeTLS(found); len(wrong) > 0 {
				t.Errorf("testssl.sh:\n%s", strings.Join(wrong, "\n"))
			}
		})
	}
	// The same judgement of a weak server has to be another.
	t.Run("weak", func(t *testing.T) {
		t.Parallel()
		cert, key := ca.certify(t, lasting90Days("weak"), private, cdnHost)
		weak := weakServer(t, cert, key, &tls.Config{
			MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS12,
			CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA},
		})
		wrong := strings.Join(judgeTLS(testssl(t, ca, weak, "--protocols", "--server-preference", "--rc4")), "\n")
		for _, want := range []string{"TLS1_1: offered", "TLS1_3: not offered", "ECDHE-RSA-AES128-SHA: a suite", "RC4: ", "HSTS_time: not asked"} {
			if !strings.Contains(wrong, want) {
				t.Errorf("it is not said that %q:\n%s", want, wrong)
			}
		}
	})
}

func lasting90Days(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(90 * 24 * time.Hour)}
}

// testsslFinding is a line of testssl.sh's report.
type testsslFinding struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
	Finding  string `json:"finding"`
}

// testssl asks testssl.sh's questions.
func testssl(t *testing.T, ca *authority, address string, questions ...string) []testsslFinding {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	file := filepath.Join(t.TempDir(), "report.json")
	// Debian's has no OpenSSL of its own, and knows no host but this one.
	// It watches what it starts in /proc, which does not know this process namespace.
	args := append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", "testssl", "--openssl", "/usr/bin/openssl", "--nodns", "none", "--ip", "127.0.0.1", "--add-ca", ca.file,
		"--warnings", "off", "--color", "0", "--quiet", "--connect-timeout", "10", "--openssl-timeout", "10", "--jsonfile", file}, questions...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	said, failed := exec.CommandContext(ctx, "unshare", append(args, "https://"+net.JoinHostPort(cdnHost, port)+"/prod/keys.json")...).CombinedOutput()
	var found []testsslFinding
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		t.Fatalf("testssl.sh wrote no report: %v, %v\n%s", err, failed, said)
	}
	return found
}

// explained are the findings that this network explains, and nothing of keypostd's.
var explained = map[string]string{
	"cert_revocation": "the CA of this test offers neither CRL nor OCSP; it is rated HIGH",
	"engine_problem":  "this machine's OpenSSL has no GOST, which nobody needs; it is a warning about testssl.sh's means",
}

// asked are questions that must have been answered; silence is not an answer.
var asked = []string{
	"SSLv2", "SSLv3", "TLS1", "TLS1_1", "TLS1_2", "TLS1_3", "cipherlist_NULL", "cipherlist_aNULL", "cipherlist_EXPORT", "cert_chain_of_trust", "cert_trust",
	"HSTS_time", "heartbleed", "CCS", "ticketbleed", "ROBOT", "secure_renego", "secure_client_renego", "CRIME_TLS", "BREACH", "POODLE_SSL", "SWEET32", "FREAK",
	"DROWN", "LOGJAM", "BEAST", "LUCKY13", "RC4",
}

// judgeTLS returns what is wrong, a line each.
func judgeTLS(found []testsslFinding) (wrong []string) {
	about := map[string]string{}
	for _, f := range found {
		about[f.ID] = f.Finding
		if slices.Contains([]string{"OK", "INFO", "LOW", "DEBUG"}, f.Severity) || explained[f.ID] != "" {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %s (%s)", f.ID, f.Finding, f.Severity))
	}
	for _, id := range asked {
		if _, answered := about[id]; !answered {
			wrong = append(wrong, id+": not asked")
		}
	}
	for id, want := range map[string]string{"SSLv2": "not offered", "SSLv3": "not offered", "TLS1": "not offered", "TLS1_1": "not offered", "TLS1_2": "offered", "TLS1_3": "offered"} {
		if !strings.HasPrefix(about[id], want) {
			wrong = append(wrong, fmt.Sprintf("%s: %s, want %s", id, about[id], want))
		}
	}
	suites := strings.Fields(about["cipherorder_TLSv1_2"])
	if len(suites) == 0 {
		wrong = append(wrong, "no suite of TLS 1.2 is listed")
	}
	for _, s := range suites {
		if !strings.Contains(s, "-GCM-") && !strings.Contains(s, "-CHACHA20-") {
			wrong = append(wrong, s+": a suite of TLS 1.2 without authenticated encryption")
		}
	}
	return wrong
}

// weakServer is net/http with the TLS that c says.
func weakServer(t *testing.T, cert, key string, c *tls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv := &http.Server{TLSConfig: c, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols), Handler: http.NotFoundHandler()}
	srv.Protocols.SetHTTP1(true) // HTTP/2 demands suites that c does not have
	t.Cleanup(func() { _ = srv.Close() })
	go func() { _ = srv.ServeTLS(l, cert, key) }()
	return l.Addr().String()
}

// publicServer is keypostd with an issuer https://oidc.keypost.test/prod and a certificate.
func publicServer(t *testing.T, cert, key string) (address string) {
	t.Helper()
	s := newStore(t, nil)
	public := filepath.Join(t.TempDir(), "prod.pub")
	writePublicKey(t, public, newECKey(t))
	s.keypost(t, "issuer", "add", "prod", "--url", "https://"+cdnHost+"/prod", "--public-key-file", public).ok(t)
	address, admin := programs.FreeAddress(t), programs.FreeAddress(t)
	o := &originServer{config: filepath.Join(t.TempDir(), "keypostd.yaml"), admin: "http://" + admin}
	must(t, os.WriteFile(o.config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: %q
  drainDelay: 0s
  tls: {mode: files, files: [{cert: %q, key: %q}]}
admin: {address: %q}
`, s.store, cdnHost, address, cert, key, admin), 0o600))
	o.up(t)
	return address
}
