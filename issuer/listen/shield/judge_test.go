package shield

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
)

func casOf(all ...*authority.Authority) *clientCAs { return parseCAs(authority.ChainPEM(all...)) }

// clientLeaf is a client's certificate, signed by parent.
func clientLeaf(t *testing.T, parent *authority.Authority, life time.Duration) *authority.Authority {
	t.Helper()
	return authority.Certify(t, parent, &x509.Certificate{
		Subject: pkix.Name{CommonName: "cdn"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	})
}

// shake connects a client and a server of these configurations. It returns what the server knows of the client.
func shake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	type end struct {
		state tls.ConnectionState
		err   error
	}
	ends := make(chan end, 1)
	go func() {
		raw, err := ln.Accept()
		if err != nil {
			ends <- end{err: err}
			return
		}
		conn := tls.Server(raw, server)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		err = conn.Handshake()
		if err == nil {
			_, err = conn.Write([]byte("x")) // after the session's ticket
		}
		ends <- end{conn.ConnectionState(), err}
	}()
	conn, err := tls.Dial("tcp", ln.Addr().String(), client)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
		_ = conn.Close()
	}
	e := <-ends
	return e.state, errors.Join(e.err, err)
}

// A handshake ends as it does where crypto/tls verifies, in both versions of TLS: anyone who has the certificate of a client and not its
// key is not a client either. Only a CA that the client sends along counts for nothing: it has to be in the file.
func TestHandshakesAsWithCryptoTLS(t *testing.T) {
	root, other, site := authority.Named(t, "cdn root", nil), authority.Named(t, "cdn root", nil), authority.Named(t, "site", nil)
	pair := authority.Certify(t, site, &x509.Certificate{DNSNames: []string{"oidc.example.com"}})
	inner, sent := authority.Named(t, "inner", root), authority.Named(t, "sent", root)
	confined := authority.Certify(t, root, &x509.Certificate{
		Subject: pkix.Name{CommonName: "confined"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{"cdn.example"},
	})
	forServers := authority.Certify(t, root, &x509.Certificate{
		Subject: pkix.Name{CommonName: "for servers"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	old := authority.Certify(t, root, &x509.Certificate{
		Subject: pkix.Name{CommonName: "old"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute),
	})
	pinned := clientLeaf(t, nil, time.Hour)
	file := casOf(root, inner, confined, forServers, old, pinned)
	pool := x509.NewCertPool()
	for _, c := range file.certs {
		pool.AddCert(c)
	}
	withName := func(parent *authority.Authority, name string) *authority.Authority {
		return authority.Certify(t, parent, &x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	mine := clientLeaf(t, root, time.Hour)
	later := authority.Certify(t, root, &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour),
	})
	own := func(leaf *authority.Authority, more ...*authority.Authority) []tls.Certificate {
		return []tls.Certificate{leaf.Pair(more...)}
	}
	for name, tt := range map[string]struct {
		certs []tls.Certificate
		want  string // what the server's error has; empty: it gets through
	}{
		"none":                          {nil, ""},
		"the root's":                    {own(mine), ""},
		"with the root":                 {own(mine, root), ""},
		"in the file itself":            {own(pinned), ""},
		"an intermediate's":             {own(clientLeaf(t, inner, time.Hour)), ""},
		"one that is not in the file":   {own(clientLeaf(t, sent, time.Hour)), "unknown authority"},
		"another CA's, of one name":     {own(clientLeaf(t, other, time.Hour)), "unknown authority"},
		"that with the CA":              {own(clientLeaf(t, other, time.Hour), root), "unknown authority"},
		"expired":                       {own(clientLeaf(t, root, -time.Minute)), "expired"},
		"not valid yet":                 {own(later), "not yet valid"},
		"an intermediate expired":       {own(clientLeaf(t, old, time.Hour)), "expired"},
		"a server's":                    {own(authority.Certify(t, root, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})), "incompatible key usage"},
		"an intermediate of servers":    {own(clientLeaf(t, forServers, time.Hour)), "incompatible key usage"},
		"a name that its CA may give":   {own(withName(confined, "a.cdn.example")), ""},
		"a name that its CA may not":    {own(withName(confined, "a.example")), "not permitted"},
		"with the key of another":       {[]tls.Certificate{{Certificate: [][]byte{mine.Cert.Raw}, PrivateKey: other.Key}}, "invalid signature by the client certificate"},
		"signed by a client of the CDN": {own(clientLeaf(t, mine, time.Hour), mine), "unknown authority"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			server := func() *tls.Config {
				return &tls.Config{Certificates: []tls.Certificate{pair.Pair()}}
			}
			theirs, ours := server(), server()
			theirs.ClientAuth, theirs.ClientCAs = tls.VerifyClientCertIfGiven, pool
			file.apply(ours)
			for by, conf := range map[string]*tls.Config{"crypto/tls": theirs, "Apply": ours} {
				// However the CAs that the server names: a stranger sends what it likes.
				client := &tls.Config{RootCAs: site.Pool(), ServerName: "oidc.example.com", MinVersion: version, MaxVersion: version}
				client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					if tt.certs == nil {
						return &tls.Certificate{}, nil
					}
					return &tt.certs[0], nil
				}
				s, err := shake(t, conf, client)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s, TLS %x, %s: %v, want %q", name, version, by, err, tt.want)
				}
				if err == nil && len(s.PeerCertificates) > 0 != (tt.certs != nil) {
					t.Errorf("%s, TLS %x, %s: %d certificates", name, version, by, len(s.PeerCertificates))
				}
			}
		}
	}
}

// A stranger chooses no key that a signature is checked with: not even a CA that ours has signed counts when the client sends it.
func TestClientsSendNoCA(t *testing.T) {
	root := authority.Named(t, "cdn root", nil)
	sent := authority.Named(t, "sent", root)
	conf := &tls.Config{}
	casOf(root).apply(conf)
	err := conf.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{clientLeaf(t, sent, time.Hour).Cert, sent.Cert}})
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("through a CA that the client sends: %v", err)
	}
}

// No session is resumed: it would outlive the certificate that began it.
func TestNoSessionIsResumed(t *testing.T) {
	root, site := authority.Named(t, "cdn root", nil), authority.Named(t, "site", nil)
	server := &tls.Config{Certificates: []tls.Certificate{authority.Certify(t, site, &x509.Certificate{DNSNames: []string{"oidc.example.com"}}).Pair()}}
	casOf(root).apply(server)
	leaf := clientLeaf(t, root, time.Hour)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := &tls.Config{
			RootCAs: site.Pool(), ServerName: "oidc.example.com", MinVersion: version, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(8), Certificates: []tls.Certificate{leaf.Pair()},
		}
		for range 2 {
			if s, err := shake(t, server, client); err != nil || s.DidResume || len(s.PeerCertificates) != 1 {
				t.Errorf("%x: resumed %v with %d certificates: %v", version, s.DidResume, len(s.PeerCertificates), err)
			}
		}
	}
}
