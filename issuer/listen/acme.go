package listen

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
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
	"go.uber.org/zap"
	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/internal/regular"
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
	// HTTP01 offers the challenge http-01 beside tls-alpn-01. Somebody must serve Challenges on port 80 then.
	HTTP01 bool
}

// ACME orders certificates from a CA and renews them (RFC 8555). It implements [Certificates]. NewACME makes one.
//
// Only Watch orders. A handshake never does: a client would wait for the CA, and strangers could use up the CA's limits.
// While a certificate cannot be renewed, the old one stays in use.
type ACME struct {
	hosts   []string
	dir     string // of the cache, one per CA
	cache   autocert.DirCache
	http01  bool
	renewal func(ctx context.Context, i int, log *zap.Logger) (asked time.Duration, err error) // renew; another one in tests of the schedule
	order   func(cache autocert.Cache) (*autocert.Manager, *reasons)                           // a Manager for one order
	answers *autocert.Manager                                                                  // of challenges, from the cache; orders nothing
	inUse   []atomic.Pointer[certificate]                                                      // by host; nil while there is none
	ordered *prometheus.CounterVec
	failing []atomic.Bool // by host
}

// NewACME reads the certificates that the cache holds. It asks nobody and makes nothing.
func NewACME(c ACMEConfig) (*ACME, error) {
	a, err := newACME(c)
	if err == nil {
		err = a.checkCache()
	}
	if err != nil {
		return nil, fmt.Errorf("set up ACME: %w", err)
	}
	for i := range a.hosts {
		a.reload(i, time.Now())
	}
	return a, nil
}

// Prepare makes the cache. It must be called before Watch: a cache that cannot be written would lose each certificate.
func (a *ACME) Prepare() error {
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return fmt.Errorf("make the certificate cache: %w", err)
	}
	if err := a.checkCache(); err != nil {
		return err
	}
	f, err := a.openLock()
	if err != nil {
		return err
	}
	return f.Close()
}

// checkCache refuses private keys that other users of this machine can read.
func (a *ACME) checkCache() error {
	for _, dir := range []string{filepath.Dir(a.dir), a.dir} {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory; name one that holds nothing but certificates", dir)
		case info.Mode().Perm()&0o077 != 0:
			return fmt.Errorf("%s holds private keys but is open to other users of this machine; run chmod 700 %s", dir, dir)
		}
	}
	return nil
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
		hosts: slices.Clone(c.Hosts), dir: dir, cache: autocert.DirCache(dir), http01: c.HTTP01,
		inUse: make([]atomic.Pointer[certificate], len(c.Hosts)), failing: make([]atomic.Bool, len(c.Hosts)),
		ordered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_tls_orders_total", Help: "Certificates that were ordered from the ACME CA, by result: ok or failed.",
		}, []string{"result"}),
	}
	for _, result := range []string{"ok", "failed"} {
		a.ordered.WithLabelValues(result)
	}
	a.renewal = a.renew
	a.answers = &autocert.Manager{Cache: quietCache{a.cache}, HostPolicy: a.allow, Prompt: autocert.AcceptTOS}
	a.order = func(cache autocert.Cache) (*autocert.Manager, *reasons) {
		why := &reasons{next: client.Transport}
		m := &autocert.Manager{
			Cache: cache, HostPolicy: a.allow, Prompt: autocert.AcceptTOS, Email: c.Email, ExternalAccountBinding: binding,
			Client: &acme.Client{DirectoryURL: c.Directory, UserAgent: "keypostd", HTTPClient: &http.Client{Transport: why, Timeout: client.Timeout}},
			// The Manager's own timer renews outside the lock of order. This makes it wait until the certificate expires: by
			// then Watch has put a newer one into the cache, which the Manager looks at first.
			RenewBefore: time.Microsecond,
		}
		if c.HTTP01 {
			m.HTTPHandler(nil) // the only way to make it take this challenge
		}
		return m, why
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
	text, err := regular.Read(file, maxPEM)
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
		if len(hello.SupportedProtos) > 1 || host == "" { // else the Manager would order
			return nil, errors.New("acme-tls/1 is for the CA alone")
		}
		return a.answers.GetCertificate(hello)
	}
	if c := a.inUse[i].Load(); c != nil {
		return &c.tls, nil
	}
	return nil, fmt.Errorf("no certificate for %s yet", a.hosts[i])
}

// Challenges answers the CA's challenges http-01 (RFC 8555, section 8.3), and 404 to all else: no redirect ever leads a
// relying party to an issuer that it did not name.
func (a *ACME) Challenges() http.Handler {
	tokens := a.answers.HTTPHandler(http.NotFoundHandler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tokens.ServeHTTP(w, r)
	})
}

// HTTP01 reports whether somebody must serve Challenges.
func (a *ACME) HTTP01() bool { return a.http01 }

// reload takes the certificate of host i from the cache if it is sound and newer than the one in use. It reports whether it did.
func (a *ACME) reload(i int, now time.Time) bool {
	file := filepath.Join(a.dir, a.hosts[i])
	fresh, err := loadPair(Pair{Cert: file, Key: file}, now) // autocert keeps key and chain in one file
	if err != nil || fresh.tls.Leaf.VerifyHostname(a.hosts[i]) != nil {
		return false // none yet, or one that has expired: Watch orders another
	}
	if old := a.inUse[i].Load(); old != nil && !fresh.notAfter.After(old.notAfter) {
		return false
	}
	a.inUse[i].Store(fresh)
	return true
}

var orderFailingDesc = prometheus.NewDesc("keypost_tls_order_failing",
	"1 while the latest order of a certificate from the ACME CA has failed, by host.", []string{"certificate"}, nil)

// Describe is part of prometheus.Collector.
func (a *ACME) Describe(ch chan<- *prometheus.Desc) {
	ch <- notAfterDesc
	ch <- orderFailingDesc
	a.ordered.Describe(ch)
}

// Collect is part of prometheus.Collector. A host without a certificate expires at 0, which is long ago.
func (a *ACME) Collect(ch chan<- prometheus.Metric) {
	for i, host := range a.hosts {
		expires, failing := 0.0, 0.0
		if c := a.inUse[i].Load(); c != nil {
			expires = float64(c.notAfter.Unix())
		}
		if a.failing[i].Load() {
			failing = 1
		}
		sendGauge(ch, notAfterDesc, expires, host)
		sendGauge(ch, orderFailingDesc, failing, host)
	}
	a.ordered.Collect(ch)
}

var _ Certificates = (*ACME)(nil)

// logTaken writes one line for each certificate that is taken into use.
func (a *ACME) logTaken(log *zap.Logger, i int) {
	log.Info("TLS certificate taken into use", zap.String("certificate", a.hosts[i]), zap.Time("notAfter", a.inUse[i].Load().notAfter))
}
