//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const acmeHost = "acme.keypost.test"

// pebble is Let's Encrypt's test CA. Its validation is real: it resolves the name and connects, from this machine only.
type pebble struct {
	*process
	ca     string // file with the root of the CA's own server
	config string
	nonces string // share of nonces that it refuses, in percent
}

// pebbleOptions are what differs between the CAs of these tests.
type pebbleOptions struct {
	tlsPort  int // on which it asks for tls-alpn-01; default 443
	validity time.Duration
	binding  bool // it demands an external account
	nonces   int
}

const bindingKey = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"

func newPebble(t *testing.T, o pebbleOptions) *pebble {
	t.Helper()
	if os.Getenv("KEYPOST_E2E_PEBBLE") == "" {
		t.Skip("Pebble is not here: KEYPOST_E2E_PEBBLE=$(test/tools/pebble) builds and names it")
	}
	ca := newAuthority(t)
	cert, key := ca.issue(t, "pebble", "localhost", "127.0.0.1")
	p := &pebble{ca: ca.file, config: filepath.Join(ca.dir, "pebble.json"), nonces: strconv.Itoa(o.nonces)}
	binding := `"externalAccountBindingRequired": false`
	if o.binding {
		binding = `"externalAccountBindingRequired": true, "externalAccountMACKeys": {"kid-1": "` + bindingKey + `"}`
	}
	must(t, os.WriteFile(p.config, fmt.Appendf(nil, `{"pebble": {"listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
 "certificate": %q, "privateKey": %q, "httpPort": 80, "tlsPort": %d, "ocspResponderURL": "", %s,
 "keyAlgorithm": "ecdsa", "retryAfter": {"authz": 1, "order": 1}, "profiles": {"default": {"description": "d", "validityPeriod": %d}}}}`,
		cert, key, cmp.Or(o.tlsPort, 443), binding, int(cmp.Or(o.validity, 90*24*time.Hour).Seconds())), 0o600))
	start(t, "dns", filepath.Join(os.Getenv("KEYPOST_E2E_PEBBLE"), "pebble-challtestsrv"), "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
		"-dnsserver", "127.0.0.1:8053", "-management", "127.0.0.1:8055", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "")
	p.up(t)
	return p
}

// up starts Pebble. It keeps accounts, orders and its own root in memory only.
func (p *pebble) up(t *testing.T) {
	t.Helper()
	p.process = start(t, "pebble", "/usr/bin/env", "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT="+p.nonces,
		filepath.Join(os.Getenv("KEYPOST_E2E_PEBBLE"), "pebble"), "-config", p.config, "-dnsserver", "127.0.0.1:8053", "-strict")
	p.await(t, "up", func(ctx context.Context) error { return expect(ctx, p.client(t), "https://localhost:14000/dir", "") })
}

func (p *pebble) client(t *testing.T) *http.Client { return trusting(t, p.ca) }

func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	text := read(t, file)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("%s holds no certificate", file)
	}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

// relyingParty trusts the root that Pebble has made for this run.
func (p *pebble) relyingParty(t *testing.T) *http.Client {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root.pem")
	must(t, os.WriteFile(root, get(t, p.client(t), "https://localhost:15000/roots/0"), 0o600))
	return trusting(t, root)
}

// most returns the highest number of a kind that Pebble has counted ("accounts", "orders").
func (p *pebble) most(t *testing.T, kind string) int {
	t.Helper()
	text := read(t, p.log)
	most := 0
	for _, found := range regexp.MustCompile(`There are now (\d+) `+kind).FindAllSubmatch(text, -1) {
		n, err := strconv.Atoi(string(found[1]))
		must(t, err)
		most = max(most, n)
	}
	return most
}

// invalid returns how many validations have failed.
func (p *pebble) invalid(t *testing.T) int {
	t.Helper()
	text := read(t, p.log)
	return strings.Count(string(text), "set INVALID by completed challenge")
}

// acmeServer is keypostd with mode acme.
type acmeServer struct {
	*process
	config, admin string
}

// newACMEServer makes a store with one issuer and a configuration whose listen.tls.acme is given.
func newACMEServer(t *testing.T, address, admin, acme string) *acmeServer {
	t.Helper()
	dir, c := t.TempDir(), filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(c, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: "%s"
  drainDelay: 0s
  tls: {mode: acme, acme: {acceptTerms: true, directory: "https://localhost:14000/dir", %s}}
admin: {address: "%s"}
allowEmpty: true
`, dir, acmeHost, address, acme, admin), 0o600))
	return &acmeServer{config: c, admin: "http://" + admin}
}

func (s *acmeServer) up(t *testing.T) {
	t.Helper()
	s.process = start(t, "keypostd", binary("keypostd"), "--config", s.config)
	s.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, s.admin+"/readyz", "") })
}

func (s *acmeServer) metric(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(string(get(t, http.DefaultClient, s.admin+"/metrics"))) {
		if value, has := strings.CutPrefix(line, name+" "); has {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// says waits for a line of keypostd's log.
func (s *acmeServer) says(t *testing.T, want ...string) {
	t.Helper()
	s.await(t, "saying "+strings.Join(want, " … "), func(context.Context) error {
		text, err := os.ReadFile(s.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if containsAll(line, want) {
				return nil
			}
		}
		return fmt.Errorf("no such line")
	})
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// certified waits until a relying party can ask.
func certified(t *testing.T, client *http.Client) {
	t.Helper()
	await(t, "a certificate for "+acmeHost, func(ctx context.Context) error {
		res, err := client.Do(request(ctx, "https://"+acmeHost+"/none"))
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
}

func request(ctx context.Context, url string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err) // a URL of this test
	}
	return r
}

func quoted(key, value string) string { return fmt.Sprintf("%s: %q", key, value) }

// The way of the README: a name, one file, run. Then what may go wrong later.
func TestACME(t *testing.T) {
	ca := newPebble(t, pebbleOptions{})
	cache := filepath.Join(t.TempDir(), "certificates")
	s := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", quoted("cache", cache)+", "+quoted("caFile", ca.ca))
	command(t, nil, "", binary("keypostd"), "--config", s.config, "--check").ok(t)
	if _, err := os.Stat(cache); !os.IsNotExist(err) {
		t.Errorf("--check made the cache: %v", err)
	}
	s.up(t)
	certified(t, ca.relyingParty(t))
	if n := ca.most(t, "orders"); n != 1 {
		t.Errorf("%d orders for one certificate", n)
	}

	t.Run("strangers order nothing", func(t *testing.T) {
		for name, c := range map[string]*tls.Config{
			"another name":           {ServerName: "other.keypost.test"},
			"a challenge of no name": {ServerName: "other.keypost.test", NextProtos: []string{"acme-tls/1"}},
			"a challenge too late":   {ServerName: acmeHost, NextProtos: []string{"acme-tls/1"}},
			"a mixed challenge":      {ServerName: acmeHost, NextProtos: []string{"acme-tls/1", "h2"}},
		} {
			c.InsecureSkipVerify = true
			if conn, err := tls.Dial("tcp", "127.0.0.1:443", c); err == nil {
				t.Errorf("%s: the handshake succeeded", name)
				_ = conn.Close()
			}
		}
		if n := ca.most(t, "orders"); n != 1 {
			t.Errorf("%d orders", n)
		}
	})
	t.Run("files are only for keypostd", func(t *testing.T) {
		must(t, filepath.Walk(cache, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		}))
	})
	t.Run("a restart asks the CA for nothing", func(t *testing.T) {
		client := ca.relyingParty(t)
		s.stop(t, 5*time.Second)
		ca.stop(t, 5*time.Second)
		s.up(t)
		certified(t, client)
	})
}

// Renewal under requests, and a CA that is away meanwhile.
func TestACMERenewal(t *testing.T) {
	ca := newPebble(t, pebbleOptions{validity: 30 * time.Second})
	s := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", quoted("cache", filepath.Join(t.TempDir(), "c"))+", "+quoted("caFile", ca.ca))
	s.up(t)
	client := ca.relyingParty(t)
	certified(t, client)
	var asked, failed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			res, err := client.Do(request(context.Background(), "https://"+acmeHost+"/none"))
			asked.Add(1)
			if err != nil {
				failed.Add(1)
				t.Log(err)
			} else {
				_ = res.Body.Close()
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	await(t, "three certificates", func(context.Context) error {
		if n := ca.most(t, "orders"); n < 3 {
			return fmt.Errorf("%d orders", n)
		}
		return nil
	})
	cancel()
	<-done
	t.Logf("%d requests over two renewals, %d failed", asked.Load(), failed.Load())
	if failed.Load() > 0 || asked.Load() < 50 {
		t.Errorf("%d of %d requests failed", failed.Load(), asked.Load())
	}
	ca.stop(t, 5*time.Second)
	s.says(t, "TLS certificate not ordered", "order a certificate for "+acmeHost) // the CA may have gone in the middle of an order
	if got := s.metric(t, `keypost_tls_order_failing{certificate="`+acmeHost+`"}`); got != "1" {
		t.Errorf("keypost_tls_order_failing is %q", got)
	}
	if conn, err := tls.Dial("tcp", "127.0.0.1:443", &tls.Config{ServerName: acmeHost, InsecureSkipVerify: true}); err != nil {
		t.Errorf("the previous certificate is not served: %v", err)
	} else {
		_ = conn.Close()
	}
}

// A proxy that ends TLS hides tls-alpn-01: here the CA asks on a port where nobody listens.
func TestACMEOverHTTP(t *testing.T) {
	ca := newPebble(t, pebbleOptions{tlsPort: 5001})
	options := quoted("cache", filepath.Join(t.TempDir(), "c")) + ", " + quoted("caFile", ca.ca)
	s := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", options)
	s.up(t)
	s.says(t, "TLS certificate not ordered", "challenge tls-alpn-01: ", "Failed to connect")
	s.stop(t, 5*time.Second)

	s = newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", options+", "+quoted("httpAddress", "127.0.0.1:80"))
	s.up(t)
	certified(t, ca.relyingParty(t))
	if n := ca.invalid(t); n != 1 { // that of the first start
		t.Errorf("%d validations have failed, want 1: only http-01 is asked for once it is set up", n)
	}
	for _, path := range []string{"/", "/prod/.well-known/openid-configuration", "/.well-known/acme-challenge/none", "/.well-known/acme-challenge/..%2fx",
		"/.well-known/acme-challenge/" + strings.Repeat("x", 3000)} {
		res, err := http.DefaultClient.Do(request(t.Context(), "http://"+acmeHost+path))
		must(t, err)
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound || strings.Contains(string(body), "/") && strings.Contains(string(body), "tmp") {
			t.Errorf("%.60s: %s: %s", path, res.Status, body)
		}
	}
}

func TestACMEExternalAccount(t *testing.T) {
	ca := newPebble(t, pebbleOptions{binding: true, nonces: 25})
	key := filepath.Join(t.TempDir(), "hmac")
	must(t, os.WriteFile(key, []byte(bindingKey+"\n"), 0o600))
	options := quoted("cache", filepath.Join(t.TempDir(), "c")) + ", " + quoted("caFile", ca.ca)
	without := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", options)
	without.up(t)
	without.says(t, "TLS certificate not ordered", "xternalAccount")
	without.stop(t, 5*time.Second)

	with := newACMEServer(t, "127.0.0.1:443", "127.0.0.1:9090", options+", externalAccount: {keyID: kid-1, "+quoted("hmacKeyFile", key)+"}")
	with.up(t)
	certified(t, ca.relyingParty(t))
	if text, _ := os.ReadFile(with.log); strings.Contains(string(text), bindingKey) {
		t.Error("the log has the HMAC key")
	}
	if n := ca.most(t, "accounts"); n != 1 {
		t.Errorf("%d accounts", n)
	}
}

// Three cold replicas behind a balancer: whichever is asked answers the challenge of the one that orders.
func TestACMEReplicas(t *testing.T) {
	ca := newPebble(t, pebbleOptions{})
	cache := filepath.Join(t.TempDir(), "c")
	var backends []string
	var replicas []*acmeServer
	for i := range 3 {
		address := fmt.Sprintf("127.0.0.1:%d", 8443+i)
		backends = append(backends, address)
		replicas = append(replicas, newACMEServer(t, address, fmt.Sprintf("127.0.0.1:%d", 9090+i), quoted("cache", cache)+", "+quoted("caFile", ca.ca)))
	}
	balance(t, "127.0.0.1:443", backends)
	for i, s := range replicas {
		s.process = start(t, fmt.Sprintf("keypostd-%d", i), binary("keypostd"), "--config", s.config)
	}
	client := ca.relyingParty(t)
	for range 6 { // each replica twice
		certified(t, client)
	}
	for _, s := range replicas {
		s.says(t, "TLS certificate taken into use")
	}
	one := func(when string) {
		t.Helper()
		if a, o := ca.most(t, "accounts"), ca.most(t, "orders"); a != 1 || o != 1 {
			t.Errorf("%s: %d accounts and %d orders, want one of each", when, a, o)
		}
	}
	one("a cold start")
	for _, s := range replicas {
		s.stop(t, 5*time.Second)
	}
	for _, s := range replicas {
		s.up(t)
	}
	for range 6 {
		certified(t, client)
	}
	one("all were started again")
}

// balance hands connections to the backends by turns, and to the next one that listens if one does not: the first replica that is up
// orders while the others are still starting.
func balance(t *testing.T, address string, backends []string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for turn := 0; ; turn++ {
			from, err := l.Accept()
			if err != nil {
				return
			}
			var to net.Conn
			for range backends {
				if to, err = net.Dial("tcp", backends[turn%len(backends)]); err == nil {
					break
				}
				turn++
			}
			if err != nil {
				_ = from.Close()
				continue
			}
			for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					_, _ = io.Copy(c[0], c[1])
					_ = c[0].Close()
				}()
			}
		}
	}()
}
