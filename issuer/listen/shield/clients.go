package shield

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// clientCAs are the certificates of CAs, one or more. They are a [prometheus.Collector]; they do not change.
type clientCAs struct {
	certs []*x509.Certificate
	check func(child, parent *x509.Certificate) error
}

// parseCAs reads PEM text, and passes over what holds no certificate, as x509.CertPool does. It returns nil when nothing is left.
func parseCAs(text []byte) *clientCAs {
	c := &clientCAs{check: (*x509.Certificate).CheckSignatureFrom}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type == "CERTIFICATE" && err == nil {
			c.certs = append(c.certs, cert)
		}
	}
	if len(c.certs) == 0 {
		return nil
	}
	return c
}

// expired describes those that have expired at a time, and reports whether that is all of them. Of none, nil, none has.
func (c *clientCAs) expired(now time.Time) (which []string, all bool) {
	if c == nil {
		return nil, false
	}
	for _, cert := range c.certs {
		if now.After(cert.NotAfter) {
			which = append(which, fmt.Sprintf("%q expired at %s", cmp.Or(cert.Subject.String(), "unnamed"), cert.NotAfter.UTC().Format(time.RFC3339)))
		}
	}
	return which, len(which) == len(c.certs)
}

var notAfterDesc = prometheus.NewDesc("keypost_shield_client_ca_not_after_timestamp_seconds",
	"When the first and the last of the CAs of the shield's client certificates expire: with the last one nobody gets in any more.", []string{"which"}, nil)

// Describe is part of prometheus.Collector.
func (c *clientCAs) Describe(ch chan<- *prometheus.Desc) { ch <- notAfterDesc }

// Collect is part of prometheus.Collector. There are two series, however many CAs there are.
func (c *clientCAs) Collect(ch chan<- prometheus.Metric) {
	expiry := func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }
	for which, cert := range map[string]*x509.Certificate{"first": slices.MinFunc(c.certs, expiry), "last": slices.MaxFunc(c.certs, expiry)} {
		ch <- prometheus.MustNewConstMetric(notAfterDesc, prometheus.GaugeValue, float64(cert.NotAfter.Unix()), which)
	}
}

// maxClientChain is how many certificates a client may send: its own, and three of CAs. The listener bounds their bytes.
const maxClientChain = 4

// apply makes a TLS configuration ask for client certificates. One of another CA ends the handshake; a client without one gets
// through it. It judges in place of crypto/tls, which tries up to 100 signatures with keys of the client's choice before it knows
// anything of it: 0.18 s of a processor for each handshake of a stranger's. That the client has the key of its certificate is still for
// crypto/tls to see, and comes after this. No session is resumed, since it would outlive the certificate that began it: a CDN
// keeps its connections.
func (c *clientCAs) apply(conf *tls.Config) {
	conf.ClientAuth, conf.ClientCAs = tls.RequestClientCert, poolOf(c.certs) // whose names the client is told
	conf.SessionTicketsDisabled = true
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		if err := c.verify(s.PeerCertificates, time.Now()); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}

// verify passes what x509.Certificate.Verify does among chains of maxClientChain: the first is a client's, and the others lead from it
// to a CA, in whatever order.
func (c *clientCAs) verify(chain []*x509.Certificate, now time.Time) error {
	if len(chain) > maxClientChain {
		return fmt.Errorf("a client sent %d certificates, of %d at most", len(chain), maxClientChain)
	}
	vouched := c.vouched(chain)
	if !slices.Contains(vouched, chain[0]) {
		return x509.UnknownAuthorityError{Cert: chain[0]}
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: poolOf(c.certs), Intermediates: poolOf(vouched), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// vouched returns the certificates that a chain of signatures leads to from a root. It goes from the roots down, so that no signature is
// checked with a key that nobody has vouched for: a stranger causes at most one check for each certificate and root of that name.
func (c *clientCAs) vouched(chain []*x509.Certificate) []*x509.Certificate {
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
