// Package clientca has the CAs that sign the certificates of clients, judges those at a bounded cost, and tells when the CAs expire: once a
// CA has, no client that it has signed for gets in, and the clients alone are told why.
package clientca

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CAs are the certificates of CAs, one or more. They are a [prometheus.Collector]; they do not change.
type CAs struct {
	certs       []*x509.Certificate
	first, last time.Time // expiry
	check       func(child, parent *x509.Certificate) error
}

// Parse reads PEM text, and passes over what holds no certificate, as x509.CertPool does. It returns nil when nothing is left.
func Parse(text []byte) *CAs {
	c := &CAs{check: (*x509.Certificate).CheckSignatureFrom}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		if len(c.certs) == 0 || cert.NotAfter.Before(c.first) {
			c.first = cert.NotAfter
		}
		if cert.NotAfter.After(c.last) {
			c.last = cert.NotAfter
		}
		c.certs = append(c.certs, cert)
	}
	if len(c.certs) == 0 {
		return nil
	}
	return c
}

// Pool returns them as crypto/tls wants them.
func (c *CAs) Pool() *x509.CertPool {
	return poolOf(c.certs)
}

// Expired describes those that have expired at a time, and reports whether that is all of them. Of none, nil, none has.
func (c *CAs) Expired(now time.Time) (which []string, all bool) {
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
func (c *CAs) Describe(ch chan<- *prometheus.Desc) { ch <- notAfterDesc }

// Collect is part of prometheus.Collector. There are two series, however many CAs there are.
func (c *CAs) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(notAfterDesc, prometheus.GaugeValue, float64(c.first.Unix()), "first")
	ch <- prometheus.MustNewConstMetric(notAfterDesc, prometheus.GaugeValue, float64(c.last.Unix()), "last")
}
