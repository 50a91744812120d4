package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/settings"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/policy"
)

// config is keypostd's configuration file (YAML). Unknown and repeated keys are errors. Durations are written with
// their unit, such as 5m. A change needs a restart; certificate files are reloaded by themselves.
type config struct {
	// Dir holds the key sets, one document NAME.yaml each: written by the CLI, by Git, by a mounted ConfigMap, or by
	// keypost mirror. Required; it must exist. keypostd never writes to it.
	Dir string `json:"dir"`

	// IssuerURLs bind issuer URLs to names of key sets: "https://oidc.example.com/{name}",
	// "https://{name}.oidc.example.com", or "NAME=https://…" for a single one. A key set that matches none for its own
	// name is refused, so that anyone who may write one key set never speaks for another issuer. Required.
	IssuerURLs []string `json:"issuerURLs"`

	// Listen is the public listener.
	Listen listenConfig `json:"listen"`

	// Admin is the listener for metrics and health. It has no authentication: keep it on loopback or inside a pod network.
	Admin adminConfig `json:"admin"`

	// Policy has the cache lifetimes for key sets whose own policy declares none. A key set's own values always win.
	Policy cacheConfig `json:"policy"`

	// HostAliases maps a host name under which a CDN reaches this server to the host in the issuer URLs:
	// {origin.oidc.example.com: oidc.example.com}. No chains; an alias never appears in a document.
	// The certificate must be for the alias then; nobody but the CDN needs one for the issuer's host. An alias must not be
	// a host that issuerURLs allow: the issuer there could not be reached.
	HostAliases map[string]string `json:"hostAliases,omitempty"`

	// AllowEmpty makes keypostd ready without a key set that it can serve, as before the first one is added. Without it
	// keypostd is not ready as long as it has nothing to serve (/readyz answers 503): the directory may be a volume that is
	// not mounted, and clients that are sent there would find no issuer. Default false; --dev allows it.
	AllowEmpty bool `json:"allowEmpty,omitempty"`

	// Poll is how often the directory is listed, beside the watch that serves a change within a second: from 1s to 15s, which
	// the gates of keys count with. Default 10s.
	Poll keystore.Duration `json:"poll"`

	// Log selects what is logged to standard error.
	Log logConfig `json:"log"`
}

type listenConfig struct {
	Address        string            `json:"address"` // host:port; default ":8443"
	TLS            tlsConfig         `json:"tls"`     // where the certificate comes from
	Shield         *shieldConfig     `json:"shield,omitempty"`
	HTTP2          *bool             `json:"http2,omitempty"` // has no effect: keypostd serves HTTP/1.1 only. This version warns of the setting, the next one refuses it.
	MaxConnections int               `json:"maxConnections"`  // open at once; default 0: as many as the memory and open files allow. Beyond it idle ones make room.
	DrainDelay     keystore.Duration `json:"drainDelay"`      // after SIGTERM: how long new connections are still accepted; default 10s, 0s for none
	DrainTimeout   keystore.Duration `json:"drainTimeout"`    // then: how long requests in flight may take; default 20s
}

// shieldConfig lets only requests through that a CDN has made: by a header whose value it adds, by its client certificate, or
// by both. All else gets 403. Admin, probes and the CA's challenges are not behind it. The files are read at start.
type shieldConfig struct {
	Header       string   `json:"header,omitempty"`       // a name of your own, such as X-Origin-Secret
	SecretFiles  []string `json:"secretFiles,omitempty"`  // one value each, 16 characters or more; all are accepted, to change from one to the next; a warning where every user may read one (mode 0644)
	ClientCAFile string   `json:"clientCAFile,omitempty"` // PEM of the CAs that sign the CDN's client certificate; where an intermediate one does, that one: what the client sends beside its own is passed over
}

type tlsConfig struct {
	// Mode is "files" (default), "acme" or "off". Off serves plain HTTP and is only for use behind a proxy that ends TLS:
	// relying parties accept nothing but HTTPS.
	Mode tlsMode `json:"mode"`

	// Files are PEM pairs, chosen by the name that the client asks for; the first one answers all other names. Each
	// certificate file holds the leaf and then its intermediates, in order: AWS refuses anything else.
	Files []pairConfig `json:"files,omitempty"`

	// ACME orders certificates from a CA, for mode acme, and renews them.
	ACME *acmeConfig `json:"acme,omitempty"`
}

// acmeConfig is for a server that the CA reaches under its names: on port 443 (tls-alpn-01), or on port 80 (http-01).
type acmeConfig struct {
	// Cache is the directory for the account's key, the certificates and theirs; it is made with mode 0700. Replicas that
	// share it order once for all. Required.
	Cache string `json:"cache"`

	// AcceptTerms says that you accept the CA's terms of service. Required to be true.
	AcceptTerms bool `json:"acceptTerms"`

	// Email is given to the CA. Optional.
	Email string `json:"email,omitempty"`

	// Hosts are the names to order certificates for, at most 20. Default: the hosts of issuerURLs that lead here (behind a CDN
	// those of hostAliases). Required with a pattern such as "https://{name}.oidc.example.com".
	Hosts []string `json:"hosts,omitempty"`

	// Directory is the URL of the CA's ACME directory. Default Let's Encrypt; "staging" is its test CA, trusted by nobody.
	Directory string `json:"directory,omitempty"`

	// CAFile has PEM certificates to trust when a private CA's own server is asked. Default those of the system.
	CAFile string `json:"caFile,omitempty"`

	// ExternalAccount names an account that the CA has made for you, where it asks for one.
	ExternalAccount *externalAccount `json:"externalAccount,omitempty"`

	// HTTPAddress is host:port of one more listener, which answers the CA's challenges http-01 and nothing else; the CA
	// asks on port 80. With it an order uses http-01, and the next one tls-alpn-01 where the CA could not validate the host so, and so on by
	// turns. Default none: the CA then asks on port 443 with tls-alpn-01, which a proxy that ends TLS hides.
	HTTPAddress string `json:"httpAddress,omitempty"`
}

// externalAccount is what the CA asks for to open an account.
type externalAccount struct {
	KeyID       string `json:"keyID"`       // as the CA gave it
	HMACKeyFile string `json:"hmacKeyFile"` // base64url, as the CA printed it
}

type pairConfig struct {
	Cert string `json:"cert"` // PEM file with the leaf and then its intermediates, in order
	Key  string `json:"key"`  // PEM file with the leaf's private key
}

type adminConfig struct {
	Address string `json:"address"` // host:port; default "127.0.0.1:9090"

	// Probes is host:port of one more listener, only for /livez and /readyz. Anyone who lets only the prober reach it knows
	// that no other client can hold up a probe. Default none.
	Probes string `json:"probes,omitempty"`

	// Page shows the operator's page and the report at /issuers to every client that reaches Address. Default false: only to clients on
	// this machine, as through kubectl port-forward. They name keys and who started a rotation; metrics and health are for everybody.
	Page bool `json:"page,omitempty"`
}

type cacheConfig struct {
	MaxAge               *keystore.Duration `json:"maxAge,omitempty"`               // default 5m; 1m to 24h
	StaleWhileRevalidate *keystore.Duration `json:"staleWhileRevalidate,omitempty"` // default 5m
	StaleIfError         *keystore.Duration `json:"staleIfError,omitempty"`         // default 24h
}

func (c cacheConfig) policy() keystore.Policy {
	return keystore.Policy{MaxAge: c.MaxAge, StaleWhileRevalidate: c.StaleWhileRevalidate, StaleIfError: c.StaleIfError}
}

type logConfig struct {
	Level  string `json:"level"`  // debug, info (default), warn, error
	Format string `json:"format"` // json (default) or console
	Access bool   `json:"access"` // a line per request, sampled: the first 100 of each second, then every 100th
}

// tlsMode accepts the bare word off, which YAML 1.1 reads as the boolean false.
type tlsMode string

const (
	tlsFiles tlsMode = "files"
	tlsACME  tlsMode = "acme"
	tlsOff   tlsMode = "off"
)

func (m *tlsMode) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		*m = tlsOff
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return errors.New("listen.tls.mode must be files, acme or off")
	}
	*m = tlsMode(s)
	return nil
}

func defaultConfig() config {
	d := keystore.DefaultCache()
	return config{
		Listen: listenConfig{
			Address: ":8443", TLS: tlsConfig{Mode: tlsFiles},
			DrainDelay: *keystore.DurationPtr(10 * time.Second), DrainTimeout: *keystore.DurationPtr(20 * time.Second),
		},
		Admin:  adminConfig{Address: "127.0.0.1:9090"},
		Policy: cacheConfig{keystore.DurationPtr(d.MaxAge), keystore.DurationPtr(d.StaleWhileRevalidate), keystore.DurationPtr(d.StaleIfError)},
		Poll:   *keystore.DurationPtr(10 * time.Second),
		Log:    logConfig{Level: "info", Format: "json"},
	}
}

func readConfig(file string) (config, error) { return settings.Read(file, parseConfig) }

func parseConfig(data []byte) (config, error) {
	c := defaultConfig()
	if err := settings.Parse(data, &c); err != nil {
		return config{}, err
	}
	return c, c.check()
}

// findings collects what is wrong with a configuration.
type findings []error

func (f *findings) add(err error) {
	if err != nil {
		*f = append(*f, err)
	}
}

func (f *findings) refuse(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// check returns an error for everything that cannot work, each with what to write instead.
func (c config) check() error {
	var f findings
	f.refuse(c.Dir == "", "dir is not set: name the directory that holds the key sets")
	f.refuse(len(c.IssuerURLs) == 0, `issuerURLs is empty: say which key set may have which URL, such as "https://oidc.example.com/{name}"`)
	patterns, err := issuer.ParsePatterns(c.IssuerURLs, false)
	f.add(err)
	f.add(c.Policy.policy().Check(false))
	c.Listen.check(&f)
	f.checkAliases(c.HostAliases, patterns)
	f.refuse(c.Poll < keystore.Duration(time.Second) || c.Poll > keystore.Duration(policy.MaxPoll),
		"poll is %v; it must be from 1s to %v, which the gates of keys count with", c.Poll, policy.MaxPoll)
	f.add(checkAddress("admin.address", c.Admin.Address))
	if c.Admin.Probes != "" {
		f.add(checkAddress("admin.probes", c.Admin.Probes))
	}
	f.checkCache(c.Dir, c.Listen.TLS.ACME)
	_, err = c.Log.level()
	f.add(err)
	return errors.Join(f...)
}

func (l listenConfig) check(f *findings) {
	f.add(checkAddress("listen.address", l.Address))
	switch t := l.TLS; t.Mode {
	case tlsFiles, tlsOff, tlsACME:
		f.refuse(t.Mode == tlsFiles && len(t.Files) == 0,
			"listen.tls.files is empty: name the certificate and key, or set listen.tls.mode to acme, or to off behind a proxy that ends TLS")
		f.refuse(t.Mode != tlsFiles && len(t.Files) > 0, "listen.tls.files is set although listen.tls.mode is %s; drop one of them", t.Mode)
		f.refuse(t.Mode != tlsACME && t.ACME != nil, "listen.tls.acme is set although listen.tls.mode is %s; drop it, or set the mode to acme", t.Mode)
		f.refuse(t.Mode == tlsACME && t.ACME == nil, "listen.tls.acme is empty: it needs cache and acceptTerms")
	default:
		f.refuse(true, "listen.tls.mode is %q; it must be files, acme or off", t.Mode)
	}
	if l.TLS.ACME != nil {
		l.TLS.ACME.check(f)
	}
	if x := l.Shield; x != nil {
		f.refuse(x.Header == "" && len(x.SecretFiles) == 0 && x.ClientCAFile == "", "listen.shield is empty: it needs header and secretFiles, or clientCAFile")
		f.refuse(x.ClientCAFile != "" && l.TLS.Mode == tlsOff,
			"listen.shield.clientCAFile is set although listen.tls.mode is off; the proxy that ends TLS has to ask for the certificate")
	}
	for i, p := range l.TLS.Files {
		f.refuse(p.Cert == "" || p.Key == "", "listen.tls.files[%d] needs both cert and key", i)
	}
	f.refuse(l.MaxConnections < 0, "listen.maxConnections is %d; it must be at least 1, or 0 for as many as fit", l.MaxConnections)
	f.refuse(l.DrainTimeout < *keystore.DurationPtr(time.Second), "listen.drainTimeout is %v; it must be at least 1s", l.DrainTimeout)
}

func (a acmeConfig) check(f *findings) {
	f.refuse(a.Cache == "", "listen.tls.acme.cache is not set: name a directory that only keypostd may read")
	f.refuse(!a.AcceptTerms, "listen.tls.acme.acceptTerms is not true: read the terms of service of the CA, then set it")
	f.refuse(strings.ContainsAny(a.Email, " \t\r\n,?&:") || a.Email != "" && !strings.Contains(a.Email, "@"),
		"listen.tls.acme.email is %q; write one address, without mailto:, or leave it out", a.Email)
	if a.HTTPAddress != "" {
		f.add(checkAddress("listen.tls.acme.httpAddress", a.HTTPAddress))
	}
}

// checkCache refuses a certificate cache among the key sets, whose directory is public data that other programs write and copy.
func (f *findings) checkCache(dir string, a *acmeConfig) {
	if a == nil || dir == "" || a.Cache == "" {
		return
	}
	keySets, err := filepath.Abs(dir)
	cache, err2 := filepath.Abs(a.Cache)
	if err != nil || err2 != nil {
		return // no working directory: what opens them says so
	}
	inside, err := filepath.Rel(keySets, cache)
	f.refuse(err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)),
		"listen.tls.acme.cache (%s) is inside dir (%s), whose key sets others write, copy and read: name a directory elsewhere, only for private keys", a.Cache, dir)
}

func checkAddress(what, address string) error {
	_, port, err := net.SplitHostPort(address)
	if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil {
		return fmt.Errorf("%s is %q; write host:port, or :port for every interface", what, address)
	}
	return nil
}

// devConfig is the configuration of --dev: loopback only, short drain, key sets and certificates below one directory.
func devConfig(dir, address, admin string) (config, error) {
	for _, a := range []string{address, admin} {
		if err := checkLoopback(a); err != nil {
			return config{}, err
		}
	}
	_, port, _ := net.SplitHostPort(address)
	c := defaultConfig()
	c.Dir, c.IssuerURLs = filepath.Join(dir, "keysets"), []string{"https://localhost:" + port + "/{name}"}
	c.Listen.Address, c.Listen.DrainDelay, c.Admin.Address = address, 0, admin
	c.Log.Format, c.AllowEmpty = "console", true
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // public data, read by other users too
		return config{}, fmt.Errorf("prepare the development directory: %w", err)
	}
	return c, nil
}

func checkLoopback(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Port() == 0 || !at.Addr().IsLoopback() {
		return fmt.Errorf("--dev serves loopback only: %q must be 127.0.0.1:PORT or [::1]:PORT", address)
	}
	return nil
}
