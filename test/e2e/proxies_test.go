//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
	programs "github.com/keypost/keypost/test/process"
)

const (
	// silence is how long a server may say nothing before its answer counts as over.
	silence = 3 * time.Second
	// lanes is how many requests are under way at a proxy at once.
	lanes = 8
)

// front is a server that is asked: keypostd, or one in front of it.
type front struct {
	name    string
	address string
	plain   bool // without TLS
	caches  bool
}

// dial connects to the proxy. protocol is what the client offers in TLS.
func (p front) dial(roots *tls.Config, host, protocol string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", p.address, patience)
	if err != nil || p.plain {
		return c, err
	}
	config := roots.Clone()
	config.ServerName, config.NextProtos = host, []string{protocol}
	t := tls.Client(c, config)
	if err := t.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return t, t.SetDeadline(time.Time{})
}

// plot is the two issuers that one request speaks of. Every request has its own, so that no cache has a copy of their
// documents before it.
type plot struct{ hostA, pathA, hostB, pathB string }

// plotOf returns the issuers of the n-th request: on hosts of their own, or both on one host.
func plotOf(n int, paths bool) plot {
	if paths {
		return plot{"oidc.keypost.test", fmt.Sprintf("/p%d", n), "oidc.keypost.test", fmt.Sprintf("/p%d-b", n)}
	}
	return plot{fmt.Sprintf("h%d.oidc.keypost.test", n), "", fmt.Sprintf("h%d-b.oidc.keypost.test", n), ""}
}

// documents are the URLs of what the issuers publish, by the names that the table has for them.
func (p plot) documents() map[string]string {
	return map[string]string{
		"A": "https://" + p.hostA + p.pathA + "/keys.json", "A discovery": "https://" + p.hostA + p.pathA + "/.well-known/openid-configuration",
		"B": "https://" + p.hostB + p.pathB + "/keys.json", "B discovery": "https://" + p.hostB + p.pathB + "/.well-known/openid-configuration",
	}
}

// fill replaces the placeholders of a request.
func (p plot) fill(text string) string {
	plain := strings.NewReplacer("{A}", p.hostA, "{a}", p.pathA, "{B}", p.hostB, "{b}", p.pathB, "{A^}", strings.ToUpper(p.hostA))
	n := len(plain.Replace(getB))
	return strings.NewReplacer("{len getB}", strconv.Itoa(n), "{len 5+getB}", strconv.Itoa(n+5), "{hex getB}", strconv.FormatInt(int64(n), 16)).Replace(plain.Replace(text))
}

// garden is one keypostd, what it publishes, and what has been found wrong with a proxy in front of it.
type garden struct {
	ca     *authority
	roots  *tls.Config
	bodies map[string]string // by URL
	urls   map[string]string // by body
	tls    string            // keypostd's address
	plain  string            // the address of a second one without TLS, for proxies that speak none to origins
}

// newGarden publishes issuers for n requests.
func newGarden(t *testing.T, n int) *garden {
	t.Helper()
	ca := newAuthority(t)
	g := &garden{ca: ca, roots: &tls.Config{RootCAs: ca.Pool()}, bodies: map[string]string{}, urls: map[string]string{}}
	dir := t.TempDir()
	backend, err := filestore.Create(dir)
	must(t, err)
	serial := 0
	for i := range n {
		for _, paths := range []bool{false, true} {
			p := plotOf(i, paths)
			for _, issuer := range []string{"https://" + p.hostA + p.pathA, "https://" + p.hostB + p.pathB} {
				serial++
				key, err := keystore.NewPublic(keys.EC(elliptic.P256(), serial).Public())
				must(t, err)
				name := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(issuer, "https://"), ".oidc.keypost.test"), "oidc.keypost.test/")
				set, err := keystore.New(keystore.Change{At: time.Now().Add(-24 * time.Hour), By: "e2e"}, keystore.Spec{
					Name: keystore.Name(name), Issuers: storetest.URLs(t, issuer), Keys: []keystore.VerificationKey{key},
				})
				must(t, err)
				must(t, keystore.Create(t.Context(), keystore.NewStore(backend), set))
			}
		}
	}
	g.tls, g.plain = g.keypostd(t, dir, true), g.keypostd(t, dir, false)
	client := impatient(g.tls, ca)
	client.Transport.(*http.Transport).DisableKeepAlives = false
	for i := range n {
		for _, paths := range []bool{false, true} {
			for _, url := range plotOf(i, paths).documents() {
				body := string(get(t, client, url))
				if other := g.urls[body]; other != "" {
					t.Fatalf("%s and %s are the same document", other, url)
				}
				g.bodies[url], g.urls[body] = body, url
			}
		}
	}
	return g
}

func (g *garden) keypostd(t *testing.T, store string, withTLS bool) (address string) {
	t.Helper()
	address, admin := programs.FreeAddress(t), programs.FreeAddress(t)
	mode := `{mode: "off"}`
	if withTLS {
		cert, key := g.certificate(t, "origin")
		mode = fmt.Sprintf("{mode: files, files: [{cert: %q, key: %q}]}", cert, key)
	}
	config := filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://oidc.keypost.test/{name}", "https://{name}.oidc.keypost.test"]
listen: {address: %q, drainDelay: 0s, tls: %s}
admin: {address: %q}
`, store, address, mode, admin), 0o600))
	p := start(t, "keypostd-"+admin[strings.LastIndexByte(admin, ':')+1:], binary("keypostd"), "--config", config)
	p.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, "http://"+admin+"/readyz", "") })
	return address
}

// certificate returns a certificate for every host of the garden.
func (g *garden) certificate(t *testing.T, name string) (cert, key string) {
	return g.ca.issue(t, name, "oidc.keypost.test", "*.oidc.keypost.test")
}

// heard is what a proxy answered to one request.
type heard struct {
	answer string
	wrong  []string // how the property is broken
}

// name returns what the table calls a body: a document of the plot, of a stranger, or nothing.
func (g *garden) name(p plot, body string) string {
	url, ok := g.urls[body]
	if !ok {
		return ""
	}
	for name, u := range p.documents() {
		if u == url {
			return name
		}
	}
	return "ANOTHER'S"
}

// judge checks the bodies of answers against the documents that a request may have, in their order.
func (g *garden) judge(p plot, may string, bodies []string) (wrong []string) {
	var got []string
	for _, body := range bodies {
		if name := g.name(p, body); name != "" {
			got = append(got, name)
		}
	}
	for reading := range strings.SplitSeq(strings.TrimPrefix(may, "!"), "|") {
		if within(got, documentsOf(reading)) {
			return nil
		}
	}
	return []string{fmt.Sprintf("it was given %q, and may have %q", got, may)}
}

// documentsOf splits the names of documents in one reading of a request.
func documentsOf(reading string) []string {
	if strings.HasSuffix(reading, "discovery") {
		return []string{reading}
	}
	return strings.Fields(reading)
}

// within reports whether all is some, in its order, perhaps with more between.
func within(some, all []string) bool {
	for _, s := range some {
		i := slices.Index(all, s)
		if i < 0 {
			return false
		}
		all = all[i+1:]
	}
	return true
}

// ask sends the bytes on a connection of their own and returns the answers.
func (g *garden) ask(p front, at plot, r rawRequest) (heard, error) {
	c, err := p.dial(g.roots, at.hostA, "http/1.1")
	if err != nil {
		return heard{}, err
	}
	defer c.Close()
	go func() { _, _ = io.WriteString(c, at.fill(r.text)) }() // a server may refuse before it has read all
	var all bytes.Buffer
	silent := false
	for buf := make([]byte, 64<<10); ; {
		if err := c.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return heard{}, err
		}
		n, err := c.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			silent = errors.Is(err, os.ErrDeadlineExceeded)
			break
		}
	}
	statuses, bodies := g.answers(at, all.Bytes(), r.head)
	if len(statuses) == 0 {
		statuses = []string{"closed"}
		if silent {
			statuses = []string{"silent"}
		}
	}
	f := heard{answer: strings.Join(statuses, ", "), wrong: g.judge(at, r.may, bodies)}
	if len(f.wrong) > 0 {
		return f, nil
	}
	// However the stream is read: a document in it is one that the request may have.
	for name, url := range at.documents() {
		if !strings.Contains(r.may, name) && strings.Contains(all.String(), g.bodies[url]) {
			f.wrong = append(f.wrong, "the answer contains the document "+name)
		}
	}
	return f, nil
}

// answers reads the answers in what came, and names their bodies.
func (g *garden) answers(at plot, stream []byte, head bool) (statuses, bodies []string) {
	br := bufio.NewReader(bytes.NewReader(stream))
	request := &http.Request{Method: http.MethodGet}
	if head {
		request.Method = http.MethodHead
	}
	for {
		if _, err := br.Peek(1); err != nil {
			return statuses, bodies
		}
		res, err := http.ReadResponse(br, request)
		if err != nil {
			return append(statuses, "no HTTP"), bodies
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		status := strconv.Itoa(res.StatusCode)
		if err != nil {
			status += " cut"
		}
		if name := g.name(at, string(body)); name != "" {
			status += " " + name
			bodies = append(bodies, string(body))
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return append(statuses, status), bodies
		}
		statuses = append(statuses, status)
	}
}

// poisoned asks as an ordinary relying party for the documents of both issuers.
func (g *garden) poisoned(p front, at plot) (wrong []string) {
	client := impatient(p.address, g.ca)
	client.Transport.(*http.Transport).DisableKeepAlives = false
	defer client.CloseIdleConnections()
	for name, url := range at.documents() {
		if p.plain {
			url = strings.Replace(url, "https:", "http:", 1)
		}
		res, err := client.Get(url)
		if err != nil { // no answer is not a wrong one: a proxy may close a connection that it had just taken
			res, err = client.Get(url)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("then, for document %s: %v", name, err))
			continue
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if got := g.name(at, string(body)); err != nil || res.StatusCode != http.StatusOK || got != name {
			wrong = append(wrong, fmt.Sprintf("then document %s is %s %s %q (%v)", name, res.Status, got, body[:min(len(body), 80)], err))
		}
	}
	return wrong
}

// row is the answer to one request: on hosts of their own, and on paths of one host.
type row struct{ hosts, paths heard }

// one sends the i-th request to a proxy, and then asks as an ordinary relying party.
func (g *garden) one(p front, i int, paths bool) (f heard, err error) {
	at, r := plotOf(i, paths), rawRequests()[i]
	if paths && r.mayOnPaths != "" {
		r.may = r.mayOnPaths
	}
	if f, err = g.ask(p, at, r); err != nil {
		return f, err
	}
	f.wrong = append(f.wrong, g.poisoned(p, at)...)
	return f, nil
}

// walk sends every request to a proxy and returns its answers.
func (g *garden) walk(t *testing.T, p front) []row {
	t.Helper()
	rows := make([]row, len(requestNames()))
	var done sync.WaitGroup
	next := make(chan int)
	for range lanes {
		done.Go(func() {
			for i := range next {
				var err, errPaths error
				rows[i].hosts, err = g.one(p, i, false)
				rows[i].paths, errPaths = g.one(p, i, true)
				if err = errors.Join(err, errPaths); err != nil {
					t.Errorf("%s: request %d: %v", p.name, i, err)
				}
			}
		})
	}
	for i := range rows {
		next <- i
	}
	close(next)
	done.Wait()
	return rows
}

// TestProxies sends what no client should send to keypostd and through proxies, and looks whether anybody then gets a document of
// another issuer, or a wrong one.
func TestProxies(t *testing.T) {
	g := newGarden(t, len(rawRequests()))
	fronts := []front{{name: "keypostd", address: g.tls}, g.nginx(t), g.haproxy(t), g.varnish(t)}
	rows := make([][]row, len(fronts))
	var done sync.WaitGroup
	for i, p := range fronts {
		done.Go(func() { rows[i] = g.walk(t, p) })
	}
	done.Wait()
	for i, p := range fronts {
		for _, wrong := range wrongs(rows[i]) {
			t.Errorf("%s, %s", p.name, wrong)
		}
		if got := g.hit(t, p); got != p.caches {
			t.Errorf("%s gives copies: %t, and is said to: %t", p.name, got, p.caches)
		}
	}

	t.Run("a cache key without the host", func(t *testing.T) {
		g.caught(t, "GET", g.nginxWith(t, "nginx-1", "proxy_cache_key $host$keypost_path", "proxy_cache_key $keypost_path"))
	})
	t.Run("a decoded cache key", func(t *testing.T) {
		g.caught(t, "an encoded letter", g.nginxWith(t, "nginx-2", "proxy_cache_key $host$keypost_path", "proxy_cache_key $host$uri",
			"proxy_no_cache $keypost_new_404;", "")) // a 404 that is not kept poisons nothing
	})
}

// caught fails the test unless a proxy that is set up wrong breaks the property with that request and ordinary ones: the table
// would show nothing if it could not.
func (g *garden) caught(t *testing.T, name string, p front) {
	t.Helper()
	f, err := g.one(p, slices.Index(requestNames(), name), false)
	must(t, err)
	wrong := f.wrong
	for n := range 2 { // other issuers' documents, which a copy may hide
		wrong = append(wrong, g.poisoned(p, plotOf(n, false))...)
	}
	if len(wrong) == 0 {
		t.Errorf("%s is not caught; it answered %s", p.name, f.answer)
	}
	t.Log(strings.Join(wrong, "\n"))
}

// hit reports whether a proxy says that it gives a copy of a document that has been asked for.
func (g *garden) hit(t *testing.T, p front) bool {
	t.Helper()
	url := plotOf(0, false).documents()["A"]
	if p.plain {
		url = strings.Replace(url, "https:", "http:", 1)
	}
	res, err := impatient(p.address, g.ca).Get(url)
	must(t, err)
	res.Body.Close()
	return cacheHit(res.Header) || res.Header.Get("Age") != ""
}

func wrongs(rows []row) (all []string) {
	for n, name := range requestNames() {
		for i, f := range []heard{rows[n].hosts, rows[n].paths} {
			for _, wrong := range f.wrong {
				all = append(all, fmt.Sprintf("%s, %s: answered %s; %s", name, []string{"on hosts", "on paths"}[i], f.answer, wrong))
			}
		}
	}
	return all
}

// requestNames are the names of all requests, in the order of the table.
func requestNames() (all []string) {
	for _, r := range rawRequests() {
		all = append(all, r.name)
	}
	return all
}

// cacheHit reports whether a shared cache says that it gave an answer by itself.
func cacheHit(h http.Header) bool {
	if age := h.Get("Age"); age != "" && age != "0" {
		return true
	}
	for _, name := range []string{"X-Cache", "Cf-Cache-Status", "Cache-Status"} {
		if strings.Contains(strings.ToLower(h.Get(name)), "hit") {
			return true
		}
	}
	return false
}
