package listen

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
	"github.com/keypost/keypost/issuer/listen/internal/exchange"
)

// Directories of Let's Encrypt. Certificates of the second are trusted by nobody: it is for trying a set-up out, without
// the limits of the first (https://letsencrypt.org/docs/staging-environment).
const (
	LetsEncrypt        = autocert.DefaultACMEDirectory
	LetsEncryptStaging = "https://acme-staging-v02.api.letsencrypt.org/directory"
)

// MaxACMEHosts bounds the names of one server. Each is an order of its own, and public CAs limit orders per week.
const MaxACMEHosts = 20

// ACMEConfig says which certificates are ordered, and from whom.
type ACMEConfig struct {
	// Hosts are DNS names without a wildcard, at least one. Nothing is ordered for any other name.
	Hosts []string
	// Cache is a directory with mode 0700, made if it is missing. It holds the account's key and the certificates with
	// theirs. Replicas may share it: one of them orders, and each answers the CA's challenges.
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
	hosts   []string
	dir     string // of the cache, one per CA
	hangs   hang.Guard
	cache   autocert.Cache
	http01  bool
	ca      http.RoundTripper                                                                     // to the CA; another one in tests
	ask     func(i int, challenge string) (asked time.Duration, err error)                        // orderOne; another one in tests of the schedule
	order   func(cache autocert.Cache, challenge string) (*autocert.Manager, *exchange.Transport) // a Manager for one order
	answers *autocert.Manager                                                                     // of challenges, from the cache; cannot order
	inUse   []atomic.Pointer[chain.Chain]                                                         // by host; nil while there is none
	ordered *prometheus.CounterVec
	asked   *prometheus.CounterVec // challenges http-01
	failing []atomic.Bool          // by host
	stuck   atomic.Bool            // the cache cannot be written
	holds   atomic.Pointer[string] // what this process has written into the lock
}

// NewACME reads the certificates that the cache holds. It asks nobody and makes nothing.
func NewACME(c ACMEConfig) (*ACME, error) {
	a, err := newACME(c)
	if err == nil {
		err = hang.Do(context.Background(), &a.hangs, a.dir, a.checkCache)
	}
	if err != nil {
		return nil, fmt.Errorf("set up ACME: %w", err)
	}
	for i := range a.hosts {
		a.reload(i, time.Now())
	}
	return a, nil
}

func newACME(c ACMEConfig) (*ACME, error) {
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
	if c.Cache == "" {
		return nil, errors.New("it needs a directory to keep certificates in; without one each restart would order again, which CAs limit")
	}
	// One per CA: a certificate of the staging CA must not be taken for a real one.
	dir := filepath.Join(c.Cache, url.PathEscape(directory.Host+directory.Path))
	a := &ACME{
		hosts: slices.Clone(c.Hosts), dir: dir, http01: c.HTTP01, ca: client.Transport,
		inUse: make([]atomic.Pointer[chain.Chain], len(c.Hosts)), failing: make([]atomic.Bool, len(c.Hosts)),
		ordered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_tls_orders_total", Help: "Certificates that were ordered from the ACME CA, by result: ok or failed.",
		}, []string{"result"}),
	}
	for _, result := range []string{"ok", "failed"} {
		a.ordered.WithLabelValues(result)
	}
	a.asked = newChallengeRequests()
	a.ask = a.orderOne
	cache := newPatientCache(autocert.DirCache(dir), &a.hangs)
	a.cache = cache
	a.answers = &autocert.Manager{
		Cache: cache.forStrangers(), HostPolicy: a.allow, Prompt: autocert.AcceptTOS,
		Client: &acme.Client{DirectoryURL: c.Directory, HTTPClient: &http.Client{Transport: noCA{}}},
	}
	a.order = func(cache autocert.Cache, challenge string) (*autocert.Manager, *exchange.Transport) {
		why := &exchange.Transport{Next: a.ca, Until: time.Now().Add(orderTime), Challenge: challenge}
		m := &autocert.Manager{
			Cache: cache, HostPolicy: a.allow, Prompt: autocert.AcceptTOS, Email: c.Email, ExternalAccountBinding: binding,
			Client: &acme.Client{DirectoryURL: c.Directory, UserAgent: "keypostd", HTTPClient: &http.Client{Transport: why, Timeout: client.Timeout}},
			// The Manager's own timer renews outside the lock and the schedule. This makes it wait until the certificate expires. By
			// then Watch has put a newer one into the cache, which the Manager looks at first, or orderTime is over.
			RenewBefore: time.Microsecond,
		}
		if c.HTTP01 {
			m.HTTPHandler(nil) // the only way to make it take this challenge
		}
		return m, why
	}
	return a, nil
}

// errOnlyWatch answers whatever would let a handshake order.
var errOnlyWatch = errors.New("certificates are ordered ahead of handshakes, never in one")

// noCA reaches no CA. It is the transport of the Manager that answers challenges: autocert makes one type of both, and orders for
// whatever it takes for no challenge.
type noCA struct{}

func (noCA) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOnlyWatch }

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
	text, err := readAtStart(file, chain.MaxPEM)
	if err != nil {
		return nil, fmt.Errorf("read the HMAC key of the external account: %w", err)
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(string(text)), "="))
	if err != nil || len(key) < 16 {
		return nil, fmt.Errorf("%s does not hold an HMAC key in base64url; write there what the CA printed, and nothing else", file) // never what it holds
	}
	return &acme.ExternalAccountBinding{KID: keyID, Key: key}, nil
}

// caTimeout bounds one request to the CA.
const caTimeout = 30 * time.Second

// readPool reads the certificates of CAs. Wanted is what the file is to hold.
func readPool(file, wanted string) (*x509.CertPool, error) {
	text, err := readAtStart(file, chain.MaxPEM)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate; give %s", file, wanted)
	}
	return pool, nil
}

func caClient(caFile string) (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: caTimeout, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	if caFile != "" {
		pool, err := readPool(caFile, "the root that signed the certificate of the CA's own server")
		if err != nil {
			return nil, fmt.Errorf("read the certificates of the CA's own server: %w", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: caTimeout}, nil
}

func (a *ACME) allow(_ context.Context, host string) error {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h // of a request for a challenge
	}
	if !slices.Contains(a.hosts, host) {
		return errors.New("this host has no certificate here")
	}
	return nil
}

// TLSConfig serves the certificates in use and the CA's challenges tls-alpn-01 (RFC 8737). A client that names no host
// gets the first certificate, as address probes do; one that names an unknown host is refused.
func (a *ACME) TLSConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto}, GetCertificate: a.choose}
}

// errUnlisted has the words that crypto/tls has for it, by which the listener counts it (unknown_sni).
var errUnlisted = errors.New("unrecognized name: no certificate is configured for it")

// errMixed refuses a handshake that is for a challenge and for something else; a CA's is for nothing else (RFC 8737, section 3).
var errMixed = errors.New("acme-tls/1 is for the CA alone")

func (a *ACME) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := strings.ToLower(hello.ServerName)
	i := slices.Index(a.hosts, host)
	if host == "" {
		i = 0
	}
	if i < 0 {
		return nil, errUnlisted
	}
	if slices.Contains(hello.SupportedProtos, acme.ALPNProto) {
		if len(hello.SupportedProtos) > 1 || host == "" { // else the Manager would try to order
			return nil, errMixed
		}
		return a.answers.GetCertificate(hello)
	}
	if c := a.inUse[i].Load(); c != nil {
		return &c.TLS, nil
	}
	return nil, fmt.Errorf("no certificate for %s yet", a.hosts[i])
}

// HTTP01 reports whether somebody must serve Challenges.
func (a *ACME) HTTP01() bool { return a.http01 }

// reload takes the certificate of host i from the cache if it is sound and better than the one in use. It reports whether it did.
func (a *ACME) reload(i int, now time.Time) bool {
	fresh, err := a.load(i, now)
	if err != nil && a.inUse[i].Load() == nil {
		// Whatever this machine's clock says: the clients' clocks count, and none of them is better off with no certificate at all.
		fresh, err = a.load(i, time.Time{})
	}
	if err != nil || fresh.TLS.Leaf.VerifyHostname(a.hosts[i]) != nil {
		return false // none yet, or none that can be used: Watch orders another
	}
	if old := a.inUse[i].Load(); old != nil && !better(a.hosts[i], fresh, old, now) {
		return false
	}
	a.inUse[i].Store(fresh)
	return true
}

// load reads the certificate of host i from the cache, where autocert keeps key and chain in one file.
func (a *ACME) load(i int, now time.Time) (*chain.Chain, error) {
	file := filepath.Join(a.dir, a.hosts[i])
	return hang.Await(context.Background(), &a.hangs, file, func() (*chain.Chain, error) { return chain.Load(file, file, now) })
}

// InUse is part of [Certificates].
func (a *ACME) InUse() []InUse {
	var all []InUse
	for i, host := range a.hosts {
		one := InUse{Names: []string{host}, From: filepath.Join(a.dir, host)}
		if c := a.inUse[i].Load(); c != nil {
			one.Names, one.Until = c.Names(), c.NotAfter
		}
		all = append(all, one)
	}
	return all
}

var orderFailingDesc = prometheus.NewDesc("keypost_tls_order_failing",
	"1 while the latest order of a certificate from the ACME CA has failed, or none could be made since the cache cannot be written or another process has had its lock for a minute, by host.", []string{"certificate"}, nil)

// Describe is part of prometheus.Collector.
func (a *ACME) Describe(ch chan<- *prometheus.Desc) {
	ch <- notAfterDesc
	ch <- orderFailingDesc
	a.ordered.Describe(ch)
	a.asked.Describe(ch)
}

// Collect is part of prometheus.Collector. A host without a certificate expires at 0, which is long ago.
func (a *ACME) Collect(ch chan<- prometheus.Metric) {
	for i, host := range a.hosts {
		expires, failing := 0.0, 0.0
		if c := a.inUse[i].Load(); c != nil {
			expires = float64(c.NotAfter.Unix())
		}
		if a.failing[i].Load() || a.stuck.Load() {
			failing = 1
		}
		sendGauge(ch, notAfterDesc, expires, host)
		sendGauge(ch, orderFailingDesc, failing, host)
	}
	a.ordered.Collect(ch)
	a.asked.Collect(ch)
}

var _ Certificates = (*ACME)(nil)

// logTaken writes one line for each certificate that is taken into use.
func (a *ACME) logTaken(log *zap.Logger, i int) {
	log.Info("TLS certificate taken into use", zap.String("certificate", a.hosts[i]), zap.Time("not_after", a.inUse[i].Load().NotAfter))
}
