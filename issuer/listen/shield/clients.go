package shield

import (
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
type clientCAs struct{ certs []*x509.Certificate }

// parseCAs reads PEM text, and passes over what holds no certificate, as x509.CertPool does. It returns nil when nothing is left.
func parseCAs(text []byte) *clientCAs {
	c := &clientCAs{}
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

// apply makes a TLS configuration ask for client certificates. One that none of the CAs has signed itself ends the handshake; a client
// without one gets through it. It judges in place of crypto/tls, which follows what a client sends along and tries up to 100 signatures
// with keys of the client's choice: 0.18 s of a processor for each handshake of a stranger's. So whatever stands between the client and
// a CA of the file is passed over. That the client has the key of its certificate is still for crypto/tls to see, and comes after this.
// No session is resumed, since it would outlive the certificate that began it: a CDN keeps its connections.
func (c *clientCAs) apply(conf *tls.Config) {
	pool := x509.NewCertPool()
	for _, cert := range c.certs {
		pool.AddCert(cert)
	}
	conf.ClientAuth, conf.ClientCAs = tls.RequestClientCert, pool // whose names the client is told
	conf.SessionTicketsDisabled = true
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return nil
		}
		client := s.PeerCertificates[0]
		if _, err := client.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}
}
