//go:build e2e

package e2e

import (
	"crypto/elliptic"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
)

// misleading is a request that caches and servers are known to read in different ways. In text, {A} is the host of the issuer that is
// asked for and {a} its path, empty where it has a host of its own; {B} and {b} are those of another issuer.
type misleading struct {
	name, text string
	other      bool // by one reading of the RFCs the answer may have the other issuer's document, too
	paths      bool // the two issuers are paths of one host
}

const (
	getA = "GET {a}/keys.json HTTP/1.1\r\nHost: {A}\r\n\r\n"
	getB = "GET {b}/keys.json HTTP/1.1\r\nHost: {B}\r\nConnection: close\r\n\r\n" // the last on its connection
)

func lines(all ...string) string { return strings.Join(all, "\r\n") + "\r\n\r\n" }

func misleadingRequests() (all []misleading) {
	for _, fields := range []string{
		"Range: bytes=0-9", "If-None-Match: *", "Cache-Control: no-store", "Accept-Encoding: identity;q=0, *;q=0", "Authorization: Basic eDp5\r\nCookie: a=b",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", "Connection: Host", "X-HTTP-Method-Override: DELETE",
		"X-Forwarded-Host: {B}\r\nX-Host: {B}", `Forwarded: host="{B}"`, "X-Original-URL: {b}/keys.json\r\nX-Rewrite-URL: {b}/keys.json", "X-A: 1\r\n Host: {B}", "X-A: a\rHost: {B}", "X-A: a\r\r\nHost: {B}",
	} {
		all = append(all, misleading{name: fields, text: lines("GET {a}/keys.json HTTP/1.1", "Host: {A}", fields, "Connection: close")})
	}
	for _, host := range []string{"Host: {A}:8443", "Host: {A^}", "Host: {A}.", "Host: {B}@{A}", "Host: {A}, {B}", "Host: {A}/{b}", "Host: {A}\x00.{B}", "Host : {A}", " Host: {B}\r\nHost: {A}"} {
		all = append(all, misleading{name: host, text: lines("GET {a}/keys.json HTTP/1.1", host, "Connection: close")})
	}
	for _, hosts := range []string{"Host: {A}\r\nHost: {B}", "Host: {A}\r\nX-A: a\nHost: {B}"} {
		all = append(all, misleading{name: hosts, text: lines("GET {a}/keys.json HTTP/1.1", hosts, "Connection: close"), other: true})
	}
	target := func(t string, other, paths bool) {
		all = append(all, misleading{name: t, text: lines("GET "+t+" HTTP/1.1", "Host: {A}", "Connection: close"), other: other, paths: paths})
	}
	for _, t := range []string{
		"{a}/%6beys.json", "{a}/keys%2Ejson", "{a}/%256beys.json", "{a}%2Fkeys.json", "{a}//keys.json", "{a}/x/../keys.json", "{a}/keys.json?/../..{b}/keys.json", "{a}/keys.json;x=1", "{a}/KEYS.JSON",
		"{a}/keys.json%00{b}/keys.json", "{a}/keys.json%0d%0aHost:%20{B}", "{a}/x/..%5ckeys.json", "//{B}{b}/keys.json", "https://{B}@{A}{a}/keys.json", "ftp://{A}{a}/keys.json",
	} {
		target(t, false, false)
	}
	for _, scheme := range []string{"https", "http"} {
		target(scheme+"://{B}{b}/keys.json", true, false)
	}
	for _, up := range []string{"..", "%2e%2e", "..%2f."} {
		target("{a}/"+up+"{b}/keys.json", true, true)
	}
	return append(all, framedRequests()...)
}

// framedRequests have bodies, or what one server takes for a body and another for the next request.
func framedRequests() (all []misleading) {
	framed := func(fields, body string, other bool) {
		all = append(all, misleading{name: fields, text: lines("GET {a}/keys.json HTTP/1.1", "Host: {A}", fields) + body, other: other})
	}
	const te, end = "Transfer-Encoding: chunked", "0\r\n\r\n"
	framed("Content-Length: {len getB}\r\nConnection: close", getB, false)
	framed(te+"\r\nContent-Length: 4", "{hex getB}\r\n"+getB+"\r\n"+end, false)
	framed("Connection: close", getB, false)
	framed("Content-Length: 3", "abc"+getB, true)
	for _, fields := range []string{
		te + "\r\nContent-Length: {len 5+getB}", te + "\r\n" + te, te + "\r\nTransfer-Encoding: identity", te + "\r\nTrailer: Host", te + "\r\nConnection: Transfer-Encoding, Content-Length",
		"Transfer-Encoding: xchunked\r\nContent-Length: {len 5+getB}", "Transfer-Encoding:\vchunked\r\nContent-Length: {len 5+getB}", "Transfer-Encoding:\r\n chunked\r\nContent-Length: {len 5+getB}",
		"Transfer-Encoding : chunked\r\nContent-Length: {len 5+getB}", "Content-Length: 5\r\nContent-Length: 0", "Content-Length: 18446744073709551616",
	} {
		framed(fields, end+getB, true)
	}
	framed(te, "3;a\nabc\r\n"+end+getB, true)
	return append(all, misleading{name: "pipelined", text: getA + getB, other: true},
		misleading{name: "chunked in HTTP/1.0", text: lines("GET {a}/keys.json HTTP/1.0", "Host: {A}", "Connection: keep-alive", te) + end + getB, other: true},
		misleading{name: "POST with a body", text: lines("POST {a}/keys.json HTTP/1.1", "Host: {A}", "Connection: close", "Content-Length: 3") + "abc"},
		misleading{name: "lines that end with LF", text: strings.ReplaceAll(strings.Replace(getA, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1), "\r\n", "\n")})
}

// plot is the two issuers that one request speaks of. Every request has its own, so that no cache has a copy of their documents before it.
type plot struct{ hostA, pathA, hostB, pathB string }

func plotOf(n int, paths bool) plot {
	if paths {
		return plot{cdnHost, fmt.Sprintf("/p%d", n), cdnHost, fmt.Sprintf("/p%d-b", n)}
	}
	return plot{fmt.Sprintf("h%d.%s", n, cdnHost), "", fmt.Sprintf("h%d-b.%s", n, cdnHost), ""}
}

func (p plot) fill(text string) string {
	plain := strings.NewReplacer("{A}", p.hostA, "{a}", p.pathA, "{B}", p.hostB, "{b}", p.pathB, "{A^}", strings.ToUpper(p.hostA))
	n := len(plain.Replace(getB))
	return strings.NewReplacer("{len getB}", strconv.Itoa(n), "{len 5+getB}", strconv.Itoa(n+5), "{hex getB}", strconv.FormatInt(int64(n), 16)).Replace(plain.Replace(text))
}

// garden has the issuers of each request, and their kids by issuer.
type garden map[string]string

func (g garden) plant(t *testing.T, store string, all []misleading) {
	t.Helper()
	backend, err := filestore.Create(store)
	must(t, err)
	for i, r := range all {
		p := plotOf(i, r.paths)
		for j, issuer := range []string{p.hostA + p.pathA, p.hostB + p.pathB} {
			key, err := keystore.NewPublic(keys.EC(elliptic.P256(), 2*i+j).Public())
			must(t, err)
			name := strings.TrimPrefix(strings.TrimSuffix(issuer, "."+cdnHost), cdnHost+"/")
			set, err := keystore.New(keystore.Change{At: time.Now().Add(-24 * time.Hour), By: "e2e"}, keystore.Spec{
				Name: keystore.Name(name), Issuers: storetest.URLs(t, "https://"+issuer), Keys: []keystore.VerificationKey{key},
			})
			must(t, err)
			must(t, keystore.Create(t.Context(), keystore.NewStore(backend), set))
			g["https://"+issuer] = string(key.ID())
		}
	}
}

// mislead sends the i-th request to a cache on a connection of its own, asks for the documents of both issuers as an ordinary relying
// party, and returns what is wrong.
func (g garden) mislead(e edge, i int, r misleading) (wrong []string) {
	p := plotOf(i, r.paths)
	answer, err := e.raw(p.hostA, p.fill(r.text))
	if err != nil {
		return []string{err.Error()}
	}
	if kid := g["https://"+p.hostB+p.pathB]; !r.other && strings.Contains(answer, kid) {
		wrong = append(wrong, "the answer has the other issuer's key")
	}
	return append(wrong, g.poisoned(e, p)...)
}

func (g garden) poisoned(e edge, p plot) (wrong []string) {
	scheme, _, _ := strings.Cut(e.url, ":")
	for _, at := range []string{p.hostA + p.pathA, p.hostB + p.pathB} {
		for path, want := range map[string]string{"/keys.json": `"` + g["https://"+at] + `"`, "/.well-known/openid-configuration": `"https://` + at + `"`} {
			res, err := e.client.Get(scheme + "://" + at + path)
			if err != nil { // no answer is not a wrong one: a proxy may close a connection that it had just taken
				res, err = e.client.Get(scheme + "://" + at + path)
			}
			if err != nil {
				wrong = append(wrong, err.Error())
				continue
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				wrong = append(wrong, fmt.Sprintf("then %s%s is %s %.80q (%v)", at, path, res.Status, body, err))
			}
		}
	}
	return wrong
}

// raw sends bytes to the cache and returns what comes within a second of the last.
func (e edge) raw(host, text string) (string, error) {
	conn, err := net.DialTimeout("tcp", e.address, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if strings.HasPrefix(e.url, "https:") {
		roots := e.client.Transport.(*http.Transport).TLSClientConfig.RootCAs
		conn = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{"http/1.1"}})
	}
	go func() { _, _ = io.WriteString(conn, text) }() // a server may refuse before it has read all
	var all strings.Builder
	for buf := make([]byte, 64<<10); ; {
		wait := time.Second
		if all.Len() == 0 {
			wait = 5 * time.Second
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return "", err
		}
		n, err := conn.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			return all.String(), nil
		}
	}
}

// TestProxies sends what no client should send to nginx and Varnish as docs/cdn configures them, and looks whether anybody then gets a
// document of another issuer, or a wrong one. Strangers who go round the cache are refused, and few requests reach keypostd.
func TestProxies(t *testing.T) {
	ca := newAuthority(t)
	store, all, g := t.TempDir(), misleadingRequests(), garden{}
	g.plant(t, store, all)
	edges := []edge{newNginxEdge(t, ca, store), newVarnishEdge(t, ca, store)}
	t.Logf("%d requests", len(all))
	for _, e := range edges {
		var done sync.WaitGroup
		next := make(chan int)
		for range 8 {
			done.Go(func() {
				for i := range next {
					for _, wrong := range g.mislead(e, i, all[i]) {
						t.Errorf("%s, %q: %s", e.name, all[i].name, wrong)
					}
				}
			})
		}
		for i := range all {
			next <- i
		}
		close(next)
		done.Wait()
	}
	t.Run("a cache key without the host is caught", func(t *testing.T) { // the rest would show nothing
		origin, address := newOrigin(t, ca, store, cdnHost)
		if e := nginxEdge(t, ca, origin, address, "proxy_cache_key $host$keypost_path", "proxy_cache_key $keypost_path"); len(g.poisoned(e, plotOf(0, false))) == 0 {
			t.Error("nobody got another issuer's document")
		}
	})
	for _, e := range edges {
		t.Run(e.name+" is the only way", func(t *testing.T) { e.shields(t, ca, "/p"+strconv.Itoa(pathsAt(all))+"/keys.json") })
	}
}

// pathsAt returns the index of a request whose issuers are paths.
func pathsAt(all []misleading) int {
	for i, r := range all {
		if r.paths {
			return i
		}
	}
	return -1
}

// shields fails the test if keypostd answers those who go round the cache, or is asked for many documents.
func (e edge) shields(t *testing.T, ca *authority, path string) {
	for _, secret := range []string{"", "0123456789abcdef0123456789abcdee"} {
		e.origin.refuses(t, ca, path, secret)
	}
	if text := read(t, e.origin.log); strings.Contains(string(text), cdnSecret) {
		t.Error("the log has the secret")
	}
	const times = 100
	before := e.origin.requests(t)
	for range times {
		if _, _, err := e.fetch(path + "?x"); err != nil {
			t.Fatal(err)
		}
	}
	if reached := e.origin.requests(t) - before; reached > times/10 {
		t.Errorf("%d of %d requests reached the origin", reached, times)
	}
}
