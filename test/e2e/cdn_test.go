//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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
	name, url string
	client    *http.Client
	origin    *originServer
}

// originServer is the keypostd behind an edge.
type originServer struct {
	*process
	config, admin string
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

// newOrigin starts keypostd with a shield: over TLS for nginx, without for Varnish, which speaks none.
func newOrigin(t *testing.T, ca *authority, store string, withTLS bool) (o *originServer, address string) {
	t.Helper()
	address, admin := programs.FreeAddress(t), programs.FreeAddress(t)
	secret, config := filepath.Join(t.TempDir(), "secret"), filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(secret, []byte(cdnSecret), 0o600))
	mode := `{mode: "off"}`
	if withTLS {
		cert, key := ca.issue(t, "origin-"+strings.ReplaceAll(address, ":", "-"), cdnHost)
		mode = fmt.Sprintf("{mode: files, files: [{cert: %q, key: %q}]}", cert, key)
	}
	must(t, os.WriteFile(config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: %q
  drainDelay: 0s
  tls: %s
  shield: {header: X-Origin-Secret, secretFiles: [%q]}
policy: {maxAge: 60s}
admin: {address: %q}
`, store, cdnHost, address, mode, secret, admin), 0o600))
	o = &originServer{config: config, admin: "http://" + admin}
	o.up(t)
	return o, address
}

// documented returns a file of docs/cdn with what is the reader's replaced.
func documented(t *testing.T, name string, own ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cdn", name))
	must(t, err)
	for i := 0; i < len(own); i += 2 {
		if !strings.Contains(string(text), own[i]) {
			t.Fatalf("%s does not have %q", name, own[i])
		}
	}
	return strings.NewReplacer(own...).Replace(string(text))
}

func newNginxEdge(t *testing.T, ca *authority, store string) edge {
	t.Helper()
	origin, address := newOrigin(t, ca, store, true)
	dir := nginx.Directory(t)
	secret := filepath.Join(dir, "secret.conf")
	must(t, os.WriteFile(secret, []byte(`proxy_set_header X-Origin-Secret "`+cdnSecret+`";`), 0o600))
	text := documented(t, "nginx.conf", "ORIGIN$", address+"$", "/var/cache/nginx/keypost", filepath.Join(dir, "keypost"),
		"/etc/nginx/keypost-secret.conf", secret, "/etc/ssl/certs/ca-certificates.crt", ca.file)
	inHTTP, rest, _ := strings.Cut(text, "# server {")
	inServer, _, closed := strings.Cut(rest, "\n# }")
	if !closed {
		t.Fatal("nginx.conf has no server block")
	}
	cert, key := ca.issue(t, "edge-"+filepath.Base(dir), cdnHost)
	s := nginx.Start(t, dir, nginx.Options{Cert: cert, Key: key, HTTP: inHTTP, Server: inServer})
	return edge{"nginx", "https://" + cdnHost, impatient(s.Address, ca), origin}
}

func newVarnishEdge(t *testing.T, ca *authority, store string) edge {
	t.Helper()
	origin, address := newOrigin(t, ca, store, false)
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	dir := t.TempDir()
	vcl := filepath.Join(dir, "keypost.vcl")
	must(t, os.WriteFile(vcl, []byte(documented(t, "varnish.vcl", "ORIGIN_HOST", host, "ORIGIN_PORT", port, "SECRET", cdnSecret)), 0o644))
	listen := programs.FreeAddress(t)
	p := start(t, "varnish-"+port, "varnishd", "-F", "-j", "none", "-n", filepath.Join(dir, "run"), "-a", listen, "-f", vcl, "-s", "malloc,16m", "-T", "none")
	e := edge{"Varnish", "http://" + cdnHost, impatient(listen, ca), origin}
	p.await(t, "up", func(ctx context.Context) error { return expect(ctx, e.client, e.url+"/prod/keys.json", "") })
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
	res, err := e.client.Get(e.url + path)
	if err != nil {
		return "", time.Since(began), err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, res.Status)
	}
	return string(text), time.Since(began), err
}

// TestBehindCaches asks through the caches that docs/cdn configures, while keypostd is stopped or hangs for longer than
// max-age, and while keys change. Varnish's client speaks plain HTTP: what ends TLS before it is not part of this.
func TestBehindCaches(t *testing.T) {
	ca := newAuthority(t)
	store := newStore(t, ca)
	publicKey := func(name string) string {
		file := filepath.Join(t.TempDir(), name+".pub")
		writePublicKey(t, file, newECKey(t))
		return file
	}
	store.keypost(t, "issuer", "add", "prod", "--url", "https://"+cdnHost+"/prod", "--public-key-file", publicKey("a"), "--max-age", "1m").ok(t)
	var edges [3][]edge // healthy, stopped, hanging
	for i := range edges {
		edges[i] = []edge{newNginxEdge(t, ca, store.store), newVarnishEdge(t, ca, store.store)}
	}
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
	t.Run("the shield holds", func(t *testing.T) {
		for _, e := range edges[0] {
			if text, err := os.ReadFile(e.origin.log); err != nil || strings.Contains(string(text), cdnSecret) {
				t.Errorf("%s: the log has the secret (%v)", e.name, err)
			}
		}
	})
	t.Run("most requests do not reach the origin", func(t *testing.T) {
		for _, e := range edges[0] {
			const times = 100
			before := e.origin.requests(t)
			for range times {
				if _, _, err := e.fetch("/prod/keys.json?" + time.Now().String()[:10]); err != nil {
					t.Fatal(err)
				}
			}
			reached := e.origin.requests(t) - before
			t.Logf("%s: %d of %d requests reached the origin", e.name, reached, times)
			if reached > times/10 {
				t.Errorf("%s: %d of %d", e.name, reached, times)
			}
		}
	})
	t.Run("an encoded path is no other's", func(t *testing.T) {
		for _, e := range edges[0] {
			if _, _, err := e.fetch("/prod%2Da/keys.json"); err == nil {
				t.Errorf("%s serves an encoded path", e.name)
			}
			if _, _, err := e.fetch("/prod/keys%2Ejson"); err == nil {
				t.Errorf("%s serves an encoded path", e.name)
			}
			if _, _, err := e.fetch("/prod/keys.json"); err != nil {
				t.Errorf("%s: poisoned: %v", e.name, err)
			}
		}
	})
	for _, e := range edges[1] {
		e.origin.stop(t, 5*time.Second)
	}
	for _, e := range edges[2] {
		e.origin.Signal(t, syscall.SIGSTOP)
		t.Cleanup(func() { e.origin.Signal(t, syscall.SIGCONT) })
	}
	var done sync.WaitGroup
	for i, what := range []string{"", "keypostd stopped", "keypostd hanging"} {
		for _, e := range edges[i] {
			if i > 0 {
				done.Go(func() { e.askOnAndOn(t, what, paths) })
			}
		}
	}
	done.Go(func() { seesChanges(t, store, edges[0], publicKey) })
	done.Wait()
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
	const convergence = 75 * time.Second // of the gate; the watch makes it a second here
	began := time.Now()
	var done sync.WaitGroup
	for _, e := range edges {
		for path, seen := range map[string]func(string) bool{
			"/prod/keys.json": func(body string) bool { return strings.Count(body, `"kid"`) == 2 },
			"/late/keys.json": func(body string) bool { return strings.Count(body, `"kid"`) == 1 },
		} {
			done.Go(func() {
				bound := convergence + 60*time.Second + 5*time.Minute // max-age and stale-while-revalidate; the origin answers
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
