//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/nginx"
	programs "github.com/keypost/keypost/test/process"
)

const (
	cdnHost   = "oidc.keypost.test"
	cdnSecret = "0123456789abcdef0123456789abcdef"
	// askedFor is longer than max-age (60 s): a cache that only keeps what is fresh would show its origin's trouble.
	askedFor = 80 * time.Second
)

// edge is a cache with the documented configuration before a keypostd of its own.
type edge struct {
	name, url, address string
	client             *http.Client
	origin             *originServer
}

// originServer is the keypostd behind an edge.
type originServer struct {
	*process
	config, admin, url string
	secret             string // the file with the shield's
}

func (o *originServer) up(t *testing.T) {
	t.Helper()
	o.process = start(t, "keypostd-"+o.admin[strings.LastIndexByte(o.admin, ':')+1:], binary("keypostd"), "--config", o.config)
	o.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, o.admin+"/readyz", "") })
}

// requests returns how many requests the origin has answered.
func (o *originServer) requests(t *testing.T) (n int) {
	t.Helper()
	for line := range strings.Lines(string(get(t, http.DefaultClient, o.admin+"/metrics"))) {
		if strings.HasPrefix(line, "keypost_http_requests_total{") {
			var one int
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' '):], &one)
			n += one
		}
	}
	return n
}

// refuses asks the origin itself, as one who goes round its cache; secret is what the client guesses, or "".
func (o *originServer) refuses(t *testing.T, ca *authority, path, secret string) {
	t.Helper()
	req := request(t.Context(), o.url+path)
	req.Host = cdnHost
	if secret != "" {
		req.Header.Set("X-Origin-Secret", secret)
	}
	transport := ca.client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.ServerName, transport.DisableKeepAlives = cdnHost, true
	res, err := transport.RoundTrip(req)
	must(t, err)
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s with %q gets %s (%s)", o.url+path, secret, res.Status, res.Header.Get("Cache-Control"))
	}
}

// newOrigin starts keypostd with a shield. Its certificate is for the issuers' host, as nginx wants it, or for an alias of it; without a name
// it speaks no TLS, as Varnish wants it.
func newOrigin(t *testing.T, ca *authority, store, name string) (o *originServer, address string) {
	t.Helper()
	address, admin := programs.FreeAddress(t), programs.FreeAddress(t)
	secret, config := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(secret, []byte(cdnSecret), 0o600))
	mode, aliases, withTLS := `{mode: "off"}`, "{}", name != ""
	patterns := fmt.Sprintf(`"https://%[1]s/{name}", "https://{name}.%[1]s"`, cdnHost)
	if withTLS {
		cert, key := ca.issue(t, "origin-"+strings.ReplaceAll(address, ":", "-"), name, "*."+name)
		mode = fmt.Sprintf("{mode: files, files: [{cert: %q, key: %q}]}", cert, key)
	}
	if withTLS && name != cdnHost {
		aliases = fmt.Sprintf("{%s: %s}", name, cdnHost)
		patterns = fmt.Sprintf("%q", "https://"+cdnHost+"/{name}") // no issuer has an alias for its host
	}
	must(t, os.WriteFile(config, fmt.Appendf(nil, `dir: %[1]s
issuerURLs: [%[2]s]
hostAliases: %[3]s
listen:
  address: %[4]q
  drainDelay: 0s
  tls: %[5]s
  shield: {header: X-Origin-Secret, secretFiles: [%[6]q]}
policy: {maxAge: 60s}
admin: {address: %[7]q}
`, store, patterns, aliases, address, mode, secret, admin), 0o600))
	o = &originServer{config: config, secret: secret, admin: "http://" + admin, url: map[bool]string{false: "http", true: "https"}[withTLS] + "://" + address}
	o.up(t)
	return o, address
}

// forget restarts the server on an empty directory. It answers 503 then.
func (o *originServer) forget(t *testing.T, store string) {
	t.Helper()
	o.stop(t, 5*time.Second)
	text := read(t, o.config)
	must(t, os.WriteFile(o.config, []byte(strings.Replace(string(text), "dir: "+store, "dir: "+t.TempDir(), 1)), 0o600))
	o.process = start(t, "keypostd-empty-"+o.admin[strings.LastIndexByte(o.admin, ':')+1:], binary("keypostd"), "--config", o.config)
	o.await(t, "up", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, o.admin+"/metrics", "") })
}

// accepts restarts the server with one secret. To anyone who shows another it answers 403.
func (o *originServer) accepts(t *testing.T, secret string) {
	t.Helper()
	o.stop(t, 5*time.Second)
	must(t, os.WriteFile(o.secret, []byte(secret), 0o600))
	o.up(t)
}

// documented returns a file of docs/cdn with what is the reader's replaced.
func documented(t *testing.T, name string, own ...string) string {
	t.Helper()
	text := read(t, filepath.Join("..", "..", "docs", "cdn", name))
	for i := 0; i < len(own); i += 2 {
		if !strings.Contains(string(text), own[i]) {
			t.Fatalf("%s does not have %q", name, own[i])
		}
	}
	return strings.NewReplacer(own...).Replace(string(text))
}

func newNginxEdge(t *testing.T, ca *authority, store string) edge {
	t.Helper()
	origin, address := newOrigin(t, ca, store, cdnHost)
	return nginxEdge(t, ca, origin, address)
}

// nginxEdge is nginx before an address, as docs/cdn has it but for some text.
func nginxEdge(t *testing.T, ca *authority, origin *originServer, address string, own ...string) edge {
	t.Helper()
	at := nginxBefore(t, ca, nginx.Options{}, address, own...)
	return edge{"nginx", "https://" + cdnHost, at, impatient(at, ca), origin}
}

// nginxBefore starts nginx before an address, as docs/cdn has it but for some text and with more directives, and returns where it listens.
func nginxBefore(t *testing.T, ca *authority, o nginx.Options, address string, own ...string) string {
	t.Helper()
	dir := nginx.Directory(t)
	secret := filepath.Join(dir, "secret.conf")
	must(t, os.WriteFile(secret, []byte(`proxy_set_header X-Origin-Secret "`+cdnSecret+`";`), 0o600))
	inHTTP, inServer := blocks(t, documented(t, "nginx.conf", append([]string{"ORIGIN", address, "/var/cache/nginx/keypost", filepath.Join(dir, "keypost"),
		"/etc/nginx/keypost-secret.conf", secret, "/etc/ssl/certs/ca-certificates.crt", ca.file}, own...)...))
	o.Cert, o.Key = ca.issue(t, "edge-"+filepath.Base(dir), cdnHost, "*."+cdnHost)
	o.HTTP, o.Server = inHTTP+o.HTTP, inServer+o.Server
	return nginx.Start(t, dir, o).Address
}

func newVarnishEdge(t *testing.T, ca *authority, store string) edge {
	t.Helper()
	origin, address := newOrigin(t, ca, store, "")
	return varnishEdge(t, ca, origin, address, "16m")
}

// varnishEdge is Varnish before an address, as docs/cdn has it but for some text.
func varnishEdge(t *testing.T, ca *authority, origin *originServer, address, storage string, own ...string) edge {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	dir := t.TempDir()
	vcl := filepath.Join(dir, "keypost.vcl")
	must(t, os.WriteFile(vcl, []byte(documented(t, "varnish.vcl", append([]string{"ORIGIN_HOST", host, "ORIGIN_PORT", port, "SECRET", cdnSecret}, own...)...)), 0o644))
	listen := programs.FreeAddress(t)
	p := start(t, "varnish-"+listen, "varnishd", "-F", "-j", "none", "-n", filepath.Join(dir, "run"), "-a", listen, "-f", vcl, "-s", "malloc,"+storage, "-T", "none")
	e := edge{"Varnish", "http://" + cdnHost, listen, impatient(listen, ca), origin}
	p.await(t, "listens", func(context.Context) error {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return e
}

// impatient is a relying party with the patience of AWS STS: a new connection for each request, 5 s for all of it.
func impatient(address string, ca *authority) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: ca.client().Transport.(*http.Transport).TLSClientConfig.RootCAs},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
}

// fetch returns the body of a document that must be there.
func (e edge) fetch(path string) (body string, took time.Duration, err error) {
	began := time.Now()
	text, err := fetch(context.Background(), e.client, e.url+path, "")
	return string(text), time.Since(began), err
}

// balancer is what may stand between a cache and keypostd, and answers by itself.
type balancer struct{ failing atomic.Bool }

// newBalancer starts a balancer before a keypostd without TLS. While it fails its answers are 500, 502, 503 and 504 in turn, but for
// Varnish's probe, which finds all well.
func newBalancer(t *testing.T, ca *authority, origin string, withTLS bool) (b *balancer, address string) {
	t.Helper()
	b = &balancer{}
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: origin})
	var asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !b.failing.Load():
			to.ServeHTTP(w, r)
		case r.Method == http.MethodHead && r.URL.Path == "/":
			w.WriteHeader(http.StatusNotFound)
		default:
			http.Error(w, "of the balancer's own", []int{500, 502, 503, 504}[asked.Add(1)%4])
		}
	}))
	if withTLS {
		cert, key := ca.issue(t, "balancer-"+strings.ReplaceAll(origin, ":", "-"), cdnHost)
		pair, err := tls.LoadX509KeyPair(cert, key)
		must(t, err)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return b, s.Listener.Addr().String()
}

// TestBehindCaches asks through the caches that docs/cdn configures, while keypostd is stopped or hangs for longer than
// max-age, while it or a balancer before it answers 5xx, and while keys change. Varnish's client speaks plain HTTP: what ends TLS before it
// is not part of this.
func TestBehindCaches(t *testing.T) {
	ca := newAuthority(t)
	store := newStore(t, ca)
	publicKey := func(name string) string {
		file := filepath.Join(t.TempDir(), name+".pub")
		writePublicKey(t, file, keys.NewEC())
		return file
	}
	store.keypost(t, "issuer", "add", "prod", "--url", "https://"+cdnHost+"/prod", "--public-key-file", publicKey("a"), "--max-age", "1m", "--stale-if-error", "24h").ok(t)
	const stopped, empty, balanced = "keypostd stopped", "keypostd restarted on an empty directory", "a balancer answering 5xx"
	const rotated = "keypostd restarted with another secret"
	short := func(e edge, what string) string {
		return strings.ToLower(e.name) + "-" + strings.Fields(what)[len(strings.Fields(what))-1]
	}
	for _, name := range []string{"nginx-stopped", "varnish-stopped", "nginx-directory", "varnish-directory", "nginx-5xx", "varnish-5xx", "nginx-secret", "varnish-secret"} {
		store.keypost(t, "issuer", "add", name, "--url", "https://"+cdnHost+"/"+name, "--public-key-file", publicKey(name), "--relying-party", "vault",
			"--max-age", "1m", "--stale-while-revalidate", "20s", "--stale-if-error", "30s").ok(t)
	}
	var edges [4][]edge // healthy, stopped, hanging, stopped once a key is published
	for i := range edges {
		edges[i] = []edge{newNginxEdge(t, ca, store.store), newVarnishEdge(t, ca, store.store)}
	}
	emptied := []edge{newNginxEdge(t, ca, store.store), newVarnishEdge(t, ca, store.store)}
	mistrusted := []edge{newNginxEdge(t, ca, store.store), newVarnishEdge(t, ca, store.store)}
	origin, plain := newOrigin(t, ca, store.store, "")
	overTLS, addressTLS := newBalancer(t, ca, plain, true)
	withoutTLS, address := newBalancer(t, ca, plain, false)
	behind := []edge{nginxEdge(t, ca, origin, addressTLS), varnishEdge(t, ca, origin, address, "16m", "req.grace = 5m", "req.grace = 1s")}
	paths := []string{"/prod/.well-known/openid-configuration", "/prod/keys.json", "/prod/openid/v1/jwks"}
	for _, all := range edges {
		for _, e := range all {
			for _, path := range paths {
				if _, _, err := e.fetch(path); err != nil {
					t.Fatalf("%s: %v", e.name, err)
				}
			}
		}
	}
	for _, e := range edges[1] {
		e.origin.stop(t, 5*time.Second)
	}
	for _, e := range edges[2] {
		e.origin.Signal(t, syscall.SIGSTOP)
		t.Cleanup(func() { e.origin.Signal(t, syscall.SIGCONT) })
	}
	var done sync.WaitGroup
	for _, c := range []struct {
		what  string
		edges []edge
		fail  func(edge)
	}{
		{stopped, edges[3], func(e edge) { e.origin.stop(t, 5*time.Second) }},
		{empty, emptied, func(e edge) { e.origin.forget(t, store.store) }},
		{rotated, mistrusted, func(e edge) { e.origin.accepts(t, "fedcba9876543210fedcba9876543210") }},
		{balanced, behind, func(edge) { overTLS.failing.Store(true); withoutTLS.failing.Store(true) }},
	} {
		for _, e := range c.edges {
			name := short(e, c.what)
			if _, _, err := e.fetch("/" + name + "/keys.json"); err != nil { // both have their copy before the balancer fails
				t.Fatalf("%s, %s: %v", e.name, c.what, err)
			}
		}
		for _, e := range c.edges {
			name := short(e, c.what)
			file := publicKey(name + "-next")
			done.Go(func() {
				e.forgets(t, store, copies{name, file, c.what, func() { c.fail(e) }})
				if c.what == rotated {
					e.isTrustedAgain(t, "/"+name+"/keys.json", "/"+name+"/openid/v1/jwks") // the second it never had
				}
			})
		}
	}
	for i, what := range []string{"", stopped, "keypostd hanging"} {
		for _, e := range edges[i] {
			if i > 0 {
				done.Go(func() { e.askOnAndOn(t, what, paths) })
			}
		}
	}
	done.Go(func() { seesChanges(t, store, edges[0], publicKey) })
	done.Wait()
}

// copies are a key set's at a cache, what happens to its origin, and the key that is published just before.
type copies struct {
	keySet, publicKey, what string
	fail                    func()
}

// forgets measures how long a cache hands out the keys without a new one when its origin fails as soon as the new one is
// published: the edge term of the gate. A gate that counted without stale-if-error would have the key sign too early. Until then
// no request fails.
func (e edge) forgets(t *testing.T, s *server, c copies) {
	path := "/" + c.keySet + "/keys.json"
	before, _, err := e.fetch(path) // the copy
	if r := s.keypost(t, "key", "add", c.keySet, "--public-key-file", c.publicKey); err != nil || r.code != 0 {
		t.Errorf("%s: %v %s", e.name, err, r.stderr)
		return
	}
	published := time.Now()
	c.fail()
	backend, err := filestore.Open(s.store)
	if err != nil {
		t.Error(err)
		return
	}
	set, _, err := keystore.NewStore(backend).Load(t.Context(), keystore.Name(c.keySet))
	if err != nil {
		t.Error(err)
		return
	}
	const maxAge, whileRevalidate = 60 * time.Second, 20 * time.Second
	counted := set.Gates().CopiesUntil(published, keystore.Cache{}).Sub(published) - policy.Convergence - maxAge // the relying party's own copy
	last, failed := time.Duration(0), time.Duration(0)
	for took := time.Duration(0); took < counted+10*time.Second && took < max(last, maxAge)+10*time.Second; took = time.Since(published) {
		body, _, err := e.fetch(path)
		if err == nil && body == before {
			last = took
		}
		if err != nil && failed == 0 {
			failed = took
			t.Logf("%s, %s: the first error, after %v: %v", e.name, c.what, took.Round(time.Second), err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("%s, %s: the keys without a new one were handed out for %v; the gate counts with %v", e.name, c.what, last.Round(time.Second), counted)
	if last > counted {
		t.Errorf("%s, %s: hands out old keys for %v, and the gate counts with %v", e.name, c.what, last, counted)
	}
	if tooShort := maxAge + whileRevalidate; last <= tooShort {
		t.Errorf("%s, %s: an edge term of %v would not be found out: old keys were handed out for %v", e.name, c.what, tooShort, last)
	}
	if 0 < failed && failed < last {
		t.Errorf("%s, %s: a request failed after %v, and there was a copy for %v", e.name, c.what, failed, last)
	}
}

// isTrustedAgain has the origin accept the edge's secret again, and wants all documents then: no refusal was kept. Varnish's probe
// needs 4 s to find the origin well, and longer on a loaded machine; a refusal that it kept would stay for its default of 120 s.
func (e edge) isTrustedAgain(t *testing.T, paths ...string) {
	for _, path := range paths {
		if _, _, err := e.fetch(path); err == nil {
			t.Errorf("%s: %s is there, although keypostd refuses the secret and no copy may be given", e.name, path)
		}
	}
	e.origin.accepts(t, cdnSecret)
	trusted := time.Now()
	for _, path := range paths {
		_, _, err := e.fetch(path)
		for ; err != nil && time.Since(trusted) < 20*time.Second; _, _, err = e.fetch(path) {
			time.Sleep(time.Second)
		}
		if err != nil {
			t.Errorf("%s, trusted again: %v", e.name, err)
		}
	}
}

// askOnAndOn asks for longer than max-age, twice a second, and lets no request fail.
func (e edge) askOnAndOn(t *testing.T, what string, paths []string) {
	asked, failed, slowest := 0, 0, time.Duration(0)
	for began := time.Now(); time.Since(began) < askedFor; time.Sleep(500 * time.Millisecond) {
		for _, path := range paths {
			_, took, err := e.fetch(path)
			asked, slowest = asked+1, max(slowest, took)
			if err != nil {
				failed++
				t.Logf("%s, %s, after %v: %v", e.name, what, time.Since(began).Round(time.Second), err)
			}
		}
	}
	t.Logf("%s, %s for %v: %d requests, %d failed, the slowest took %v", e.name, what, askedFor, asked, failed, slowest.Round(time.Millisecond))
	if failed > 0 || asked < 50 {
		t.Errorf("%s, %s: %d of %d requests failed", e.name, what, failed, asked)
	}
}

// seesChanges measures how long a new key and a new issuer take to be seen through healthy caches that had the documents
// without them, among them a 404.
func seesChanges(t *testing.T, s *server, edges []edge, publicKey func(string) string) {
	for _, e := range edges {
		if _, _, err := e.fetch("/late/keys.json"); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s: an issuer that does not exist yet: %v", e.name, err)
		}
		if _, _, err := e.fetch("/prod/keys.json"); err != nil {
			t.Error(err)
		}
	}
	for _, args := range [][]string{
		{"key", "add", "prod", "--public-key-file", publicKey("b")},
		{"issuer", "add", "late", "--url", "https://" + cdnHost + "/late", "--public-key-file", publicKey("c")},
	} {
		if r := s.keypost(t, args...); r.code != 0 {
			t.Errorf("%v: %s", args, r.stderr)
		}
	}
	began := time.Now()
	var done sync.WaitGroup
	for _, e := range edges {
		for path, seen := range map[string]func(string) bool{
			"/prod/keys.json": func(body string) bool { return strings.Count(body, `"kid"`) == 2 },
			"/late/keys.json": func(body string) bool { return strings.Count(body, `"kid"`) == 1 },
		} {
			done.Go(func() {
				bound := policy.Convergence + 60*time.Second + 5*time.Minute // max-age and stale-while-revalidate; the origin answers
				for {
					body, _, err := e.fetch(path)
					took := time.Since(began)
					if err == nil && seen(body) {
						t.Logf("%s: what was added to %s is seen after %v; the gate counts with %v and, where the origin fails, 24h more", e.name, path, took.Round(time.Second), bound)
						return
					}
					if took > 2*time.Minute { // each request after max-age renews the copy
						t.Errorf("%s: %s is not seen after %v", e.name, path, took)
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
	}
	done.Wait()
}
