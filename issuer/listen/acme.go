package listen

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/acme"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// Directories of Let's Encrypt. Certificates of the second are trusted by nobody: it is for trying a set-up out, without
// the limits of the first (https://letsencrypt.org/docs/staging-environment).
const (
	LetsEncrypt        = acme.LetsEncryptURL
	LetsEncryptStaging = "https://acme-staging-v02.api.letsencrypt.org/directory"
)

// MaxACMEHosts bounds the names of one server. Each is an order of its own, and public CAs limit orders per week.
const MaxACMEHosts = 20

// ACMEConfig says which certificates are ordered, and from whom.
type ACMEConfig struct {
	// Hosts are DNS names without a wildcard, at least one. Nothing is ordered for any other name.
	Hosts []string
	// Cache is a directory with mode 0700, made if it is missing. Required: without one each restart would order again, which CAs
	// limit. It holds the account's key and the certificates with theirs. Replicas may share it: one of them orders, and each answers
	// the CA's challenges.
	Cache string
	// Directory is the URL of the CA's directory (RFC 8555, section 7.1.1). Empty means LetsEncrypt.
	Directory string
	// CAFile has the PEM certificates to trust when the CA is asked. Empty means those of the system.
	CAFile string
	// Email is given to the CA, which may write to it. Optional.
	Email string
	// KeyID and MACKeyFile name an account at the CA that exists already (RFC 8555, section 7.3.4): the file holds the HMAC
	// key in base64url. Both or neither.
	KeyID, MACKeyFile string
	// HTTP01 offers the challenge http-01 before tls-alpn-01, one in each order. Somebody must serve Challenges on port 80 then.
	HTTP01 bool
}

// ACME orders certificates from a CA and renews them (RFC 8555). It implements [Certificates]. NewACME makes one.
//
// Only Watch orders. A handshake never does: a client would wait for the CA, and strangers could use up the CA's limits.
// While a certificate cannot be renewed, the old one stays in use.
type ACME struct {
	hosts     []*acmeHost
	dir       string // of the cache, one per CA
	hangs     hang.Guard
	http01    bool
	directory string       // of the CA
	ca        *http.Client // the way to it
	account   acme.Account // as the CA is told of it
	lock      *os.File     // nil while another replica has it; owned by Watch
}

// acmeHost is a host with its certificate.
type acmeHost struct {
	name    string
	inUse   atomic.Pointer[chain.Chain] // nil while there is none
	failing atomic.Bool                 // the latest order has failed
	failed  int                         // orders in a row; owned by Watch
	retry   time.Time                   // no order before; owned by Watch
}

// NewACME reads the certificates that the cache holds. It asks nobody and makes nothing.
func NewACME(c ACMEConfig) (*ACME, error) {
	if err := checkHosts(c.Hosts); err != nil {
		return nil, err
	}
	if c.Directory == "" {
		c.Directory = LetsEncrypt
	}
	directory, err := url.Parse(c.Directory)
	if err != nil || directory.Scheme != "https" || directory.Host == "" {
		return nil, fmt.Errorf("the directory %q is not an https URL; write the URL that the CA documents as its ACME directory", c.Directory)
	}
	binding, err := readBinding(c.KeyID, c.MACKeyFile)
	if err != nil {
		return nil, err
	}
	client, err := caClient(c.CAFile)
	if err != nil {
		return nil, err
	}
	a := &ACME{
		// One per CA: a certificate of the staging CA must not be taken for a real one.
		dir:    filepath.Join(c.Cache, url.PathEscape(directory.Host+directory.Path)),
		http01: c.HTTP01, directory: c.Directory, ca: client, account: acme.Account{ExternalAccountBinding: binding},
	}
	if c.Email != "" {
		a.account.Contact = []string{"mailto:" + c.Email}
	}
	if err := a.onDisk(a.checkCache); err != nil {
		return nil, err
	}
	for _, host := range c.Hosts {
		h := &acmeHost{name: host}
		a.hosts = append(a.hosts, h)
		a.take(h)
	}
	return a, nil
}

func checkHosts(hosts []string) error {
	if len(hosts) == 0 || len(hosts) > MaxACMEHosts {
		return fmt.Errorf("it needs 1 to %d host names, not %d", MaxACMEHosts, len(hosts))
	}
	for i, h := range hosts {
		switch {
		case strings.HasPrefix(h, "*."):
			return fmt.Errorf("%q is a wildcard, for which a CA demands a record in DNS; name each host, or use certificate files", h)
		case !dnsname.IsSubdomain(h) || !strings.Contains(h, ".") || net.ParseIP(h) != nil:
			return fmt.Errorf("%q is not a host name that a public CA gives certificates for: lower case, with a dot, no port", h)
		case slices.Contains(hosts[:i], h):
			return fmt.Errorf("%q is given twice", h)
		}
	}
	return nil
}

func readBinding(keyID, file string) (*acme.ExternalAccountBinding, error) {
	if keyID == "" && file == "" {
		return nil, nil
	}
	if keyID == "" || file == "" {
		return nil, errors.New("an external account needs its key ID and the file with its HMAC key; the CA gives both")
	}
	text, err := regular.ReadOnce(file, chain.MaxPEM)
	if err != nil {
		return nil, fmt.Errorf("read the HMAC key of the external account: %w", err)
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("%s does not hold an HMAC key in base64url; write there what the CA printed, and nothing else", file) // never what it holds
	}
	return &acme.ExternalAccountBinding{KID: keyID, Key: key}, nil
}

func caClient(caFile string) (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: caTimeout, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	if caFile != "" {
		text, err := regular.ReadOnce(caFile, chain.MaxPEM)
		if err != nil {
			return nil, fmt.Errorf("read the certificates of the CA's own server: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no PEM certificate; give the root that signed the certificate of the CA's own server", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: boundedCA{transport}, Timeout: caTimeout, CheckRedirect: notRedirected}, nil
}

// notRedirected follows no redirect: RFC 8555 has none, and one leads wherever the CA likes, to what listens inside the network
// that this server is in.
func notRedirected(to *http.Request, _ []*http.Request) error {
	return fmt.Errorf("the CA redirects to %s, which is not followed; if its ACME directory is there now, set listen.tls.acme.directory to it", to.URL.Redacted())
}

// boundedCA is the way to the CA: over TLS, whatever URLs its directory names, and with answers of at most maxAnswer. Package acme
// reads errors of whatever length: one of 400 MB took 1.6 GB, and with it a server whose certificate is sound.
type boundedCA struct{ http.RoundTripper }

const maxAnswer = 1 << 20 // bytes

func (b boundedCA) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, fmt.Errorf("the CA names %s, without TLS, which is not followed (RFC 8555, section 6.1); ask those who run it for https", req.URL.Redacted())
	}
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	return resp, nil
}

// find returns the host of a name, or nil.
func (a *ACME) find(name string) *acmeHost {
	i := slices.IndexFunc(a.hosts, func(h *acmeHost) bool { return h.name == name })
	if i < 0 {
		return nil
	}
	return a.hosts[i]
}

// TLSConfig serves the certificates in use and the CA's challenges tls-alpn-01 (RFC 8737). A client that names no host
// gets the first certificate, as address probes do; one that names an unknown host is refused.
func (a *ACME) TLSConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto}, GetCertificate: a.choose}
}

// errUnlisted has the words that crypto/tls has for it, by which the listener counts it (unknown_sni).
var errUnlisted = errors.New("unrecognized name: no certificate is configured for it")

func (a *ACME) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	h := a.hosts[0]
	if hello.ServerName != "" {
		h = a.find(strings.ToLower(hello.ServerName))
	}
	if h == nil {
		return nil, errUnlisted
	}
	if slices.Contains(hello.SupportedProtos, acme.ALPNProto) {
		return a.challengeCertificate(h)
	}
	if c := h.inUse.Load(); c != nil {
		return &c.TLS, nil
	}
	return nil, fmt.Errorf("no certificate for %s yet", h.name)
}

// HTTP01 reports whether somebody must serve Challenges.
func (a *ACME) HTTP01() bool { return a.http01 }

// take takes the certificate of a host from the cache if it was issued later than the one in use. It reports whether it did.
// Nothing is refused for its dates, whatever this machine's clock says: the clients' clocks count, and none of them is better off
// with no certificate at all.
func (a *ACME) take(h *acmeHost) bool {
	text, err := a.read(h.name)
	if err != nil {
		return false
	}
	fresh, err := parseChain(text, h.name)
	if old := h.inUse.Load(); err != nil || old != nil && !fresh.TLS.Leaf.NotBefore.After(old.TLS.Leaf.NotBefore) {
		return false
	}
	h.inUse.Store(fresh)
	return true
}

// parseChain reads a key with its chain, in one text as the cache has them, which must be sound and for the host.
func parseChain(text []byte, host string) (*chain.Chain, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	c, err := chain.Check(pair, time.Time{})
	if err != nil {
		return nil, err
	}
	return c, c.TLS.Leaf.VerifyHostname(host)
}

// InUse is part of [Certificates].
func (a *ACME) InUse() []InUse {
	var all []InUse
	for _, h := range a.hosts {
		one := InUse{Names: []string{h.name}, From: filepath.Join(a.dir, h.name)}
		if c := h.inUse.Load(); c != nil {
			one.Names, one.Until = c.Names(), c.NotAfter
		}
		all = append(all, one)
	}
	return all
}

var orderFailingDesc = prometheus.NewDesc("keypost_tls_order_failing",
	"1 while the latest order of a certificate from the ACME CA has failed, by host.", []string{"certificate"}, nil)

// Describe is part of prometheus.Collector.
func (a *ACME) Describe(ch chan<- *prometheus.Desc) {
	ch <- notAfterDesc
	ch <- orderFailingDesc
}

// Collect is part of prometheus.Collector. A host without a certificate expires at 0, which is long ago.
func (a *ACME) Collect(ch chan<- prometheus.Metric) {
	for _, h := range a.hosts {
		expires := 0.0
		if c := h.inUse.Load(); c != nil {
			expires = float64(c.NotAfter.Unix())
		}
		ch <- gauge(notAfterDesc, expires, h.name)
		ch <- gauge(orderFailingDesc, flag(h.failing.Load()), h.name)
	}
}

var _ Certificates = (*ACME)(nil)
