package servername

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
)

// A server has a certificate for one of its names, and says of each of the others that it has none.
func TestDial(t *testing.T) {
	dir := t.TempDir()
	ca := authority.New(t)
	ca.Issue(t, dir, "origin.example.com")
	pair, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key")
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName != "origin.example.com" {
			return nil, errors.New("no such name")
		}
		return &pair, nil
	}}
	dials := 0
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	dial := func() (net.Conn, error) {
		dials++
		return (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	}
	trusting, other := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}, &tls.Config{RootCAs: authority.New(t).Pool(), MinVersion: tls.VersionTLS12}
	conn, name, err := Dial(t.Context(), trusting, []string{"oidc.example.com", "origin.example.com"}, dial)
	if err != nil || name != "origin.example.com" || dials != 2 {
		t.Fatalf("%s, %v after %d connections", name, err, dials)
	}
	_ = conn.Close()
	_, _, err = Dial(t.Context(), trusting, []string{"oidc.example.com"}, dial)
	if err == nil || strings.Contains(err.Error(), "asked as") || len(ByName(err)) != 1 {
		t.Errorf("one name: %v", err)
	}
	_, _, err = Dial(t.Context(), other, []string{"oidc.example.com", "origin.example.com"}, dial)
	bad, is := errors.AsType[*tls.CertificateVerificationError](err)
	if !is || bad == nil || len(ByName(err)) != 2 || !strings.Contains(err.Error(), "asked as oidc.example.com: remote error: tls: ") || strings.Count(err.Error(), "--ca-file") != 1 {
		t.Errorf("another CA: %v", err)
	}
	if again := OnlyGiven(err, other.RootCAs); strings.Count(again.Error(), "--ca-file") != 1 || OnlyGiven(bad, nil).Error() != bad.Error() {
		t.Errorf("said twice, or of the system's CAs: %v", again)
	}
}

// A wait in vain ends the attempts: the next name would be waited for as long.
func TestDialWaitsOnce(t *testing.T) {
	dials := 0
	_, _, err := Dial(t.Context(), &tls.Config{MinVersion: tls.VersionTLS12}, []string{"a.example.com", "b.example.com", "c.example.com"}, func() (net.Conn, error) {
		dials++
		here, there := net.Pipe()
		if dials == 2 {
			return here, here.SetDeadline(time.Now().Add(-time.Second))
		}
		return here, there.Close()
	})
	if dials != 2 || !isTimeout(err) || !strings.Contains(err.Error(), "asked as a.example.com") {
		t.Errorf("%d connections, %v", dials, err)
	}
}
