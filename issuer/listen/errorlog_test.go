package listen

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/keypost/keypost/test/authority"

	"github.com/keypost/keypost/issuer/listen/shield"
)

// send writes raw bytes to a TLS listener and leaves as hangUp says.
func send(t *testing.T, address, raw string, hangUp func(*net.TCPConn) error) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	if err := hangUp(c.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
}

func stay(*net.TCPConn) error       { return nil }
func leave(c *net.TCPConn) error    { return c.Close() }
func slamDoor(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }
func handshake(conf *tls.Config) func(*testing.T, site) {
	return func(t *testing.T, s site) {
		c := conf.Clone()
		if c.RootCAs == nil && !c.InsecureSkipVerify {
			c.RootCAs = s.root.Pool()
		}
		conn, err := tls.Dial("tcp", s.address, c)
		if err == nil {
			conn.Close()
		}
	}
}

// Every failure is brought about by a real client, for the reasons are read from
// text that crypto/tls may reword with a new release of Go.
func TestHandshakeErrorsAreCountedByReason(t *testing.T) {
	raw := func(text string, hangUp func(*net.TCPConn) error) func(*testing.T, site) {
		return func(t *testing.T, s site) { send(t, s.address, text, hangUp) }
	}
	const halfHello = "\x16\x03\x01\x02\x00\x01"
	name := "oidc.example.com"
	stranger := authority.Named(t, "stranger", nil).Pool()
	for _, tc := range []struct {
		reason, name string
		client       func(*testing.T, site)
	}{
		{"eof", "port scan", raw("", leave)},
		{"reset", "reset in the hello", raw(halfHello, slamDoor)},
		{"timeout", "silence", raw("", stay)},
		{"not_tls", "plain HTTP", raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n", stay)},
		{"no_shared_version", "TLS 1.1", handshake(&tls.Config{ServerName: name, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})},
		{"no_shared_cipher", "RSA key exchange", handshake(&tls.Config{ServerName: name, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}})},
		{"no_shared_protocol", "only HTTP/2", handshake(&tls.Config{ServerName: name, NextProtos: []string{"h2"}})},
		{"bad_certificate", "CA unknown to the client", handshake(&tls.Config{ServerName: name, RootCAs: stranger})},
		{"bad_certificate", "name not in the certificate", handshake(&tls.Config{ServerName: "other.example.com"})},
		{"bad_certificate", "client in 2099", handshake(&tls.Config{ServerName: name, Time: func() time.Time { return time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) }})},
	} {
		t.Run(tc.reason+" "+tc.name, func(t *testing.T) {
			core, logs := observer.New(zapcore.DebugLevel)
			s := startSite(t, Config{Log: zap.New(core), limits: limits{read: 300 * time.Millisecond}})
			tc.client(t, s)
			eventually(t, "the failure is counted", func() bool { return gathered(t, s.metrics, "keypost_tls_handshake_errors_total") > 0 })
			checkCounter(t, s, tc.reason)
			if n := logs.Len(); n > 0 {
				t.Errorf("a stranger caused %d log lines: %v", n, logs.All())
			}
		})
	}
}

// Who is refused for a client certificate is told apart from strangers: the CDN itself is out then.
func TestClientCertificatesAreCountedByReason(t *testing.T) {
	expired := func(t *testing.T, parent *authority.Authority, name string) *authority.Authority {
		return authority.Certify(t, parent, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: parent == nil, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	}
	ca, old := authority.Named(t, "cdn", nil), expired(t, nil, "cdn")
	late := expired(t, ca, "late")
	for _, tc := range []struct {
		reason, name string
		ca           *authority.Authority
		shown        []tls.Certificate
	}{
		{"client_certificate_expired", "its CA has", old, clientOf(t, old, x509.ExtKeyUsageClientAuth)},
		{"client_certificate_expired", "it has", ca, []tls.Certificate{late.Pair()}},
		{"client_certificate_untrusted", "another CA's", ca, clientOf(t, authority.Named(t, "unrecognized name", nil), x509.ExtKeyUsageClientAuth)},
		{"client_certificate_untrusted", "another CA's of the same name", ca, clientOf(t, authority.Named(t, "cdn", nil), x509.ExtKeyUsageClientAuth)},
		{"client_certificate_unfit", "a server's", ca, clientOf(t, ca, x509.ExtKeyUsageServerAuth)},
	} {
		t.Run(tc.reason+" "+tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ca.pem")
			writeFile(t, file, authority.ChainPEM(tc.ca))
			shield, err := shield.New(shield.Config{ClientCAFile: file})
			if err != nil {
				t.Fatal(err)
			}
			if which, all := shield.ExpiredCAs(time.Now()); all != (tc.ca == old) || (len(which) > 0) != all {
				t.Errorf("expired: %v %v", which, all)
			}
			s := startSite(t, Config{Shield: shield})
			eventually(t, "the CA's expiry is its metric", func() bool {
				return gathered(t, s.metrics, "keypost_shield_client_ca_not_after_timestamp_seconds") == 2*float64(tc.ca.Cert.NotAfter.Unix())
			})
			conf := s.clientTLS()
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tc.shown[0], nil }
			if _, _, err := get(t, "https://"+s.address, conf, false); err == nil {
				t.Error("it is let in")
			}
			eventually(t, "the failure is counted", func() bool { return gathered(t, s.metrics, "keypost_tls_handshake_errors_total") > 0 })
			checkCounter(t, s, tc.reason)
		})
	}
}

func checkCounter(t *testing.T, s site, reason string) {
	t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "keypost_tls_handshake_errors_total" || m.GetCounter().GetValue() == 0 {
				continue
			}
			if got := m.GetLabel()[0].GetValue(); got != reason {
				t.Errorf("counted as %s, want %s", got, reason)
			}
		}
	}
}

func TestPanicIsAnError(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	s := startSite(t, Config{Log: zap.New(core), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })})
	if _, _, err := get(t, "https://"+s.address, s.clientTLS(), false); err == nil {
		t.Error("a panic was answered")
	}
	eventually(t, "the panic is logged", func() bool { return logs.Len() > 0 })
	line := logs.All()[0]
	if line.Level != zapcore.ErrorLevel || !strings.Contains(line.ContextMap()["detail"].(string), "boom") {
		t.Errorf("got %v", line)
	}
}
