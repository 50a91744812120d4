package clientca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// maxClientChain is how many certificates a client may send: its own, and three of CAs.
	maxClientChain = 4
	// maxClientBytes bounds them together. Four with RSA-4096 have 9 KiB.
	maxClientBytes = 32 << 10
)

// Apply makes a TLS configuration ask for client certificates. One of another CA ends the handshake; a client without one gets
// through it. It judges in place of crypto/tls, which tries up to 100 signatures with keys of the client's choice before it knows
// anything of it: 0.18 s of a processor for each handshake of a stranger's. That the client has the key of its certificate is still for crypto/tls
// to see, and comes after this. Whoever is through and has certificates has been verified, in a resumed session too: VerifyConnection is
// called with the certificates of the first handshake.
func (c *CAs) Apply(conf *tls.Config) {
	now := conf.Time
	if now == nil {
		now = time.Now
	}
	conf.ClientAuth, conf.ClientCAs = tls.RequestClientCert, c.Pool() // whose names the client is told
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		if _, err := c.verify(s.PeerCertificates, now()); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
	// A session that VerifyConnection would refuse is not resumed: its client is to show a certificate again. Refused, it would try the
	// same session another time, as nothing makes it forget that in TLS 1.3.
	conf.WrapSession = func(s tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		if len(s.PeerCertificates) > 0 {
			until, err := c.verify(s.PeerCertificates, now())
			if err != nil {
				return nil, err
			}
			session.Extra = append(session.Extra, strconv.AppendInt([]byte(c.verifiedBy()), until.Unix(), 10))
		}
		return conf.EncryptTicket(s, session)
	}
	conf.UnwrapSession = func(ticket []byte, s tls.ConnectionState) (*tls.SessionState, error) {
		session, err := conf.DecryptTicket(ticket, s)
		if err != nil || session == nil || slices.ContainsFunc(session.Extra, func(extra []byte) bool { return !c.counts(extra, now()) }) {
			return nil, err
		}
		return session, nil
	}
}

// verifiedBy begins what a session with certificates carries: which CAs have verified them. The time follows until when they do.
func (c *CAs) verifiedBy() string {
	sum := sha256.New()
	for _, root := range c.certs {
		_, _ = sum.Write(root.Raw) // never fails
	}
	return fmt.Sprintf("keypost client CAs %x until ", sum.Sum(nil))
}

func (c *CAs) counts(extra []byte, now time.Time) bool {
	text, ours := bytes.CutPrefix(extra, []byte(c.verifiedBy()))
	until, err := strconv.ParseInt(string(text), 10, 64)
	return ours && err == nil && !now.After(time.Unix(until, 0))
}

// verify passes what x509.Certificate.Verify does among chains of maxClientChain: the first is a client's, and the others lead from it
// to a CA, in whatever order. It returns until when the chain is valid.
func (c *CAs) verify(chain []*x509.Certificate, now time.Time) (until time.Time, err error) {
	size := 0
	for _, cert := range chain {
		size += len(cert.Raw)
	}
	if len(chain) > maxClientChain || size > maxClientBytes {
		return until, fmt.Errorf("a client sent %d certificates of %d bytes, of %d and %d at most", len(chain), size, maxClientChain, maxClientBytes)
	}
	vouched := c.vouched(chain)
	if !slices.Contains(vouched, chain[0]) {
		return until, x509.UnknownAuthorityError{Cert: chain[0]}
	}
	ways, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.Pool(), Intermediates: poolOf(vouched), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if c.fips && err == nil {
		ways = slices.DeleteFunc(ways, func(way []*x509.Certificate) bool {
			return slices.ContainsFunc(way, func(cert *x509.Certificate) bool { return !allowedByFIPS(cert) })
		})
		if len(ways) == 0 {
			return until, errors.New("no FIPS compatible chain of certificates leads to a CA")
		}
	}
	for _, way := range ways {
		first := slices.MinFunc(way, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		if first.NotAfter.After(until) {
			until = first.NotAfter
		}
	}
	return until, err
}

// allowedByFIPS is what crypto/tls asks of each certificate of a chain with FIPS 140-3 (isCertificateAllowedFIPS).
func allowedByFIPS(cert *x509.Certificate) bool {
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= 2048
	case *ecdsa.PublicKey:
		return key.Curve == elliptic.P256() || key.Curve == elliptic.P384() || key.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return true
	}
	return false
}

// vouched returns the certificates that a chain of signatures leads to from a root. It goes from the roots down, so that no signature is
// checked with a key that nobody has vouched for: a stranger causes at most one check for each certificate and root of that name.
func (c *CAs) vouched(chain []*x509.Certificate) []*x509.Certificate {
	known, unknown := slices.Clone(c.certs), slices.Clone(chain)
	for i := 0; i < len(known); i++ {
		parent := known[i]
		if slices.ContainsFunc(known[:i], parent.Equal) {
			continue // it has been tried
		}
		unknown = slices.DeleteFunc(unknown, func(child *x509.Certificate) bool {
			signed := child.Equal(parent) || bytes.Equal(child.RawIssuer, parent.RawSubject) && c.check(child, parent) == nil
			if signed {
				known = append(known, child)
			}
			return signed
		})
	}
	return known[len(c.certs):]
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}
