package listen

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// Certificates is the source of the listener's TLS keys and certificates: [Files] or
// [ACME]. The metrics it collects are constant in number and bear the prefix
// keypost_tls_. All methods may be called concurrently.
type Certificates interface {
	prometheus.Collector
	// TLSConfig is asked for once; what changes later happens behind its
	// GetCertificate. Versions below TLS 1.2 are refused in any case, and
	// the HTTP protocols are added to its NextProtos.
	TLSConfig() *tls.Config
	// Watch keeps the certificates fresh until ctx is done. Trouble with a new
	// certificate never takes away the one in use.
	Watch(ctx context.Context, log *zap.Logger)
	// InUse returns what clients are shown at this time.
	InUse() []InUse
}

// InUse is a certificate that clients are shown.
type InUse struct {
	Names []string  // that it is for
	From  string    // its file
	Until time.Time // the first expiry in its chain; zero: there is none yet
}

// Pair names the PEM files of one certificate: Cert holds the leaf and then its
// intermediates in order, Key the leaf's private key.
type Pair struct{ Cert, Key string }

// Files serves certificates from files, chosen by SNI, and replaces them when the
// files change. LoadFiles makes one.
type Files struct {
	pairs []Pair
	hosts []string // each covered by the certificates in use, always

	inUse   atomic.Pointer[certSet] // replaced whole, by Watch only
	failing atomic.Bool
	trouble []trouble  // by pair; owned by Watch
	hangs   hang.Guard // of their files
}

// trouble is why the files of a pair are not taken, or empty.
type trouble struct{ seen, told string }

// LoadFiles reads the pairs, at least one, and refuses any with which some client would fail: a
// key that does not match, a chain out of order or with strangers in it (AWS
// accepts neither), an expired certificate. Each of hosts must be covered by the
// certificate that a client asking for it would get; an entry such as
// "*.oidc.example.com" only by a certificate for just that wildcard. A client that
// names an unknown host, or none, gets the first pair: CDNs and address probes do.
// Where several pairs bear one name, the first is used.
func LoadFiles(pairs []Pair, hosts []string) (*Files, error) {
	now := time.Now()
	f := &Files{pairs: pairs, hosts: hosts, trouble: make([]trouble, len(pairs))}
	var set certSet
	for i, p := range pairs {
		if slices.ContainsFunc(pairs[:i], func(q Pair) bool { return q.Cert == p.Cert }) {
			return nil, fmt.Errorf("load TLS certificates: %q is given twice, name each file once", p.Cert)
		}
		c, err := f.load(context.Background(), p, now)
		if err != nil {
			return nil, err
		}
		set = append(set, c)
	}
	if host := set.uncovered(hosts); host != "" {
		return nil, fmt.Errorf("load TLS certificates: no certificate covers host %q; add one to listen.tls.files", host)
	}
	f.inUse.Store(&set)
	return f, nil
}

// Alone returns the files that hold a leaf and none of its issuers, although something else than itself signed it. That is
// right where a root signed it that every relying party has; where an intermediate did, clients that do not have it fail,
// among them AWS, anyone who fetched it on their own before.
func (f *Files) Alone() []string {
	var alone []string
	for i, c := range *f.inUse.Load() {
		if leaf := c.TLS.Leaf; len(c.TLS.Certificate) == 1 && !bytes.Equal(leaf.RawIssuer, leaf.RawSubject) {
			alone = append(alone, f.pairs[i].Cert)
		}
	}
	return alone
}

// TLSConfig returns a configuration whose certificates follow the files.
func (f *Files) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return f.inUse.Load().choose(hello.ServerName), nil
		},
	}
}

var (
	notAfterDesc = prometheus.NewDesc("keypost_tls_certificate_not_after_timestamp_seconds",
		"When the first certificate of the chain in use expires, by certificate file, or by host with ACME (0: there is none yet).", []string{"certificate"}, nil)
	failingDesc = prometheus.NewDesc("keypost_tls_reload_failing",
		"1 while some certificate file holds what cannot be used and the previous certificate stays.", nil, nil)
)

// InUse is part of [Certificates].
func (f *Files) InUse() []InUse {
	var all []InUse
	for i, c := range *f.inUse.Load() {
		all = append(all, InUse{c.Names(), f.pairs[i].Cert, c.NotAfter})
	}
	return all
}

// Describe is part of prometheus.Collector.
func (f *Files) Describe(ch chan<- *prometheus.Desc) {
	ch <- notAfterDesc
	ch <- failingDesc
}

// Collect is part of prometheus.Collector.
func (f *Files) Collect(ch chan<- prometheus.Metric) {
	for i, c := range *f.inUse.Load() {
		ch <- gauge(notAfterDesc, float64(c.NotAfter.Unix()), f.pairs[i].Cert)
	}
	ch <- gauge(failingDesc, flag(f.failing.Load()))
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// certSet has the certificates in the order of the pairs, at least one. It does not change.
type certSet []*chain.Chain

// find returns the certificate that bears the name, or nil. One that bears it as it is comes before a wildcard, which stands for one
// label (RFC 9525, section 6.3); asked for a wildcard, it finds only that one.
func (s certSet) find(name string) *chain.Chain {
	name = strings.ToLower(name)
	i := slices.IndexFunc(s, func(c *chain.Chain) bool { return slices.Contains(c.TLS.Leaf.DNSNames, name) })
	if i < 0 {
		i = slices.IndexFunc(s, func(c *chain.Chain) bool { return c.TLS.Leaf.VerifyHostname(name) == nil })
	}
	if i < 0 {
		return nil
	}
	return s[i]
}

func (s certSet) choose(sni string) *tls.Certificate { return &cmp.Or(s.find(sni), s[0]).TLS }

// uncovered returns the first host without a certificate, or "".
func (s certSet) uncovered(hosts []string) string {
	i := slices.IndexFunc(hosts, func(host string) bool {
		c := s.find(host)
		return c == nil || net.ParseIP(host) != nil && c != s[0] // a client that asks for an address sends no SNI
	})
	if i < 0 {
		return ""
	}
	return hosts[i]
}
