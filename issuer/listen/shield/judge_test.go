package shield

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

func certsOf(all ...*authority.Authority) []*x509.Certificate {
	var certs []*x509.Certificate
	for _, a := range all {
		certs = append(certs, a.Cert)
	}
	return certs
}

// What a client sends is judged as crypto/x509 does, but for chains that are too long.
func TestClientChains(t *testing.T) {
	root, other := authority.Named(t, "cdn root", nil), authority.Named(t, "cdn root", nil) // of the same name
	a := authority.Named(t, "a", root)
	b := authority.Named(t, "b", a)
	c := authority.Named(t, "c", b)
	renewed := authority.Named(t, "cdn root", root) // a new key under the old name, which the old one signs
	pinned := clientLeaf(t, nil, time.Hour)
	named := authority.Certify(t, root, &x509.Certificate{
		Subject: pkix.Name{CommonName: "named"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	})
	judge := casOf(root, pinned)
	for name, tt := range map[string]struct {
		chain []*x509.Certificate
		want  string // what the error has; empty: it is verified
		alone bool   // crypto/x509 would take it
	}{
		"by the root":                    {certsOf(clientLeaf(t, root, time.Hour)), "", true},
		"with the root":                  {certsOf(clientLeaf(t, root, time.Hour), root), "", true},
		"three between":                  {certsOf(clientLeaf(t, c, time.Hour), c, b, a), "", true},
		"in another order":               {certsOf(clientLeaf(t, c, time.Hour), a, c, b), "", true},
		"and a stranger's":               {certsOf(clientLeaf(t, a, time.Hour), other, a), "", true},
		"twice":                          {certsOf(clientLeaf(t, a, time.Hour), a, a), "", true},
		"a root with a new key":          {certsOf(clientLeaf(t, renewed, time.Hour), renewed), "", true},
		"in the file itself":             {certsOf(pinned), "", true},
		"five":                           {certsOf(clientLeaf(t, c, time.Hour), c, b, a, root), "5 certificates", true},
		"one is missing":                 {certsOf(clientLeaf(t, c, time.Hour), c, a), "unknown authority", false},
		"a stranger's":                   {certsOf(clientLeaf(t, other, time.Hour), other), "unknown authority", false},
		"a stranger's, with what is not": {certsOf(clientLeaf(t, other, time.Hour), a, root), "unknown authority", false},
		"a stranger's, and expired":      {certsOf(clientLeaf(t, other, -time.Minute)), "unknown authority", false}, // no more is looked at
		"expired":                        {certsOf(clientLeaf(t, root, -time.Minute)), "expired", false},
		"a path that is too long":        {certsOf(clientLeaf(t, authority.Named(t, "n", named), time.Hour), authority.Named(t, "n", named), named), "unknown authority", false},
		"a server's":                     {certsOf(authority.Certify(t, root, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})), "incompatible key usage", false},
		"signed by a client":             {certsOf(clientLeaf(t, clientLeaf(t, root, time.Hour), time.Hour), clientLeaf(t, root, time.Hour)), "unknown authority", false},
	} {
		_, alone := tt.chain[0].Verify(x509.VerifyOptions{Roots: poolOf(judge.certs), Intermediates: poolOf(tt.chain[1:]), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (alone == nil) != tt.alone {
			t.Errorf("%s: crypto/x509 says %v", name, alone)
		}
		if err := judge.verify(tt.chain, time.Now()); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A stranger's certificates, each of a name that leads further, cost a few checks of signatures, only with the keys of the CAs in the
// file; one more certificate, and none.
func TestStrangersChainsAreCheap(t *testing.T) {
	root := authority.Named(t, "cdn root", nil)
	judge := casOf(root)
	checks := 0
	judge.check = func(child, parent *x509.Certificate) error {
		if checks++; !parent.Equal(root.Cert) {
			t.Error("a signature is checked with a stranger's key")
		}
		return child.CheckSignatureFrom(parent)
	}
	var signers []*authority.Authority // of one name, with different keys; the last one signed the others and the leaf
	for range 20 {
		key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, authority.CertifyKey(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "X"}, IsCA: true, BasicConstraintsValid: true}, key))
	}
	as := func(name string, parent *authority.Authority) *authority.Authority {
		return authority.Named(t, name, parent)
	}
	likeRoot := authority.Named(t, "cdn root", nil)
	for name, tt := range map[string]struct {
		chain []*x509.Certificate
		most  int
	}{
		"many of one name":   {append(certsOf(clientLeaf(t, signers[19], time.Hour)), certsOf(signers...)...), 0},
		"five":               {certsOf(clientLeaf(t, signers[4], time.Hour), signers[0], signers[1], signers[2], signers[3]), 0},
		"four":               {certsOf(clientLeaf(t, signers[3], time.Hour), signers[0], signers[1], signers[2]), 0},
		"the root's name":    {certsOf(clientLeaf(t, likeRoot, time.Hour), likeRoot, as("cdn root", likeRoot), as("b", likeRoot)), 4},
		"the root among it":  {certsOf(clientLeaf(t, likeRoot, time.Hour), root, likeRoot, as("b", likeRoot)), 3},
		"signatures of it":   {certsOf(clientLeaf(t, signers[0], time.Hour), signers[0], as("X", signers[0]), as("X", signers[0])), 0},
		"without any of its": {certsOf(clientLeaf(t, likeRoot, time.Hour)), 1},
	} {
		checks = 0
		if err := judge.verify(tt.chain, time.Now()); err == nil || checks > tt.most {
			t.Errorf("%s: %d signatures were checked, want at most %d: %v", name, checks, tt.most, err)
		}
	}
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
// key is not a client either.
func TestHandshakesAsWithCryptoTLS(t *testing.T) {
	root, other, site := authority.Named(t, "cdn root", nil), authority.Named(t, "cdn root", nil), authority.Named(t, "site", nil)
	pair := authority.Certify(t, site, &x509.Certificate{DNSNames: []string{"oidc.example.com"}})
	inner := authority.Named(t, "inner", root)
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
		"through an intermediate":       {own(clientLeaf(t, inner, time.Hour), inner), ""},
		"without that":                  {own(clientLeaf(t, inner, time.Hour)), "unknown authority"},
		"another CA's, of one name":     {own(clientLeaf(t, other, time.Hour)), "unknown authority"},
		"that with the CA":              {own(clientLeaf(t, other, time.Hour), root), "unknown authority"},
		"expired":                       {own(clientLeaf(t, root, -time.Minute)), "expired"},
		"not valid yet":                 {own(later), "not yet valid"},
		"an intermediate expired":       {own(clientLeaf(t, old, time.Hour), old), "expired"},
		"a server's":                    {own(authority.Certify(t, root, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})), "incompatible key usage"},
		"an intermediate of servers":    {own(clientLeaf(t, forServers, time.Hour), forServers), "incompatible key usage"},
		"a name that its CA may give":   {own(withName(confined, "a.cdn.example"), confined), ""},
		"a name that its CA may not":    {own(withName(confined, "a.example"), confined), "not permitted"},
		"with the key of another":       {[]tls.Certificate{{Certificate: [][]byte{mine.Cert.Raw}, PrivateKey: other.Key}}, "invalid signature by the client certificate"},
		"signed by a client of the CDN": {own(clientLeaf(t, mine, time.Hour), mine), "unknown authority"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			server := func() *tls.Config {
				return &tls.Config{Certificates: []tls.Certificate{pair.Pair()}}
			}
			theirs, ours := server(), server()
			theirs.ClientAuth, theirs.ClientCAs = tls.VerifyClientCertIfGiven, root.Pool()
			casOf(root).apply(ours)
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
