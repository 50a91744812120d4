package contract

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

// Each test here is named after a fault that was seen in a running server of the same kind.

// A HEAD that comes first was cached as an empty body, and the GETs after it got that (a caching proxy).
func TestPeerHeadFirstEmptiesGet(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	c := v.client(t)
	for _, path := range []string{"/keys.json", "/openid/v1/jwks", "/.well-known/openid-configuration", ""} {
		resp, err := c.Head(urlA + path)
		must(t, err)
		must(t, resp.Body.Close())
		status, body := get(t, c, urlA+path)
		if status != 200 || body == "" || resp.StatusCode != 200 || resp.ContentLength != int64(len(body)) {
			t.Errorf("%s: HEAD %d with length %d, then GET %d with %d bytes", path, resp.StatusCode, resp.ContentLength, status, len(body))
		}
	}
}

// A route with the issuer's URL in it made the server fetch any address (a merging proxy); others forwarded methods
// and hosts. Nothing that a request names is ever dialled.
func TestPeerFetchesForStrangers(t *testing.T) {
	t.Parallel()
	var dialled atomic.Int64
	victim, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { victim.Close() })
	go func() {
		for {
			conn, err := victim.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			conn.Close()
		}
	}()
	v := ready(t, newEstate(t).settings)
	at := victim.Addr().String()
	for _, request := range []string{
		"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at,
		"GET https://" + at + "/keys.json HTTP/1.1\r\nHost: oidc.example.com",
		"GET /keys/%257Bissuer%257D?issuer=http://" + at + "/ HTTP/1.1\r\nHost: oidc.example.com",
		"GET /prod-a/keys.json?issuer=http://" + at + "/ HTTP/1.1\r\nHost: oidc.example.com\r\nX-Forwarded-Host: " + at + "\r\nReferer: http://" + at + "/",
		"GET /prod-a/keys.json HTTP/1.1\r\nHost: " + at,
		"CONNECT " + at + " HTTP/1.1\r\nHost: " + at,
		"POST /prod-a/keys.json HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: 0\r\nLocation: http://" + at + "/",
	} {
		v.send(t, request)
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("keypostd dialled an address that a request named, %d times", n)
	}
}

// send sends a request as it is and returns the whole answer.
func (v *server) send(t *testing.T, request string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", v.public, &tls.Config{RootCAs: v.roots(t), ServerName: "oidc.example.com"})
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(process.Patience)))
	_, err = io.WriteString(conn, request+"\r\nConnection: close\r\n\r\n")
	must(t, err)
	answer, err := io.ReadAll(conn)
	must(t, err)
	return string(answer)
}

// An unknown issuer was answered with 200 and {"keys":null}, and any Host was copied into the issuer (a server with
// self-registration).
func TestPeerUnknownIssuerIs200(t *testing.T) {
	t.Parallel()
	v := ready(t, newEstate(t).settings)
	for _, host := range []string{"oidc.example.com", "evil.example", "nobody.oidc.example.com"} {
		for _, path := range []string{"/nobody/keys.json", "/nobody/openid/v1/jwks", "/nobody/.well-known/openid-configuration", "/nobody", "/keys.json"} {
			answer := v.send(t, "GET "+path+" HTTP/1.1\r\nHost: "+host)
			if !strings.HasPrefix(answer, "HTTP/1.1 404 ") || !strings.HasSuffix(answer, "\r\n\r\nnot found\n") || strings.Contains(answer, host) {
				t.Errorf("%s%s: %q", host, path, answer)
			}
		}
	}
}

// Ready was said at 0.25 s, and for another half second issuers were answered with 404 (2,000 issuers, many in one
// server), which a CDN may keep.
func TestPeerReadyBeforeLoaded(t *testing.T) {
	t.Parallel()
	const issuers = 2000
	s := newSettings(t)
	url := func(i int) string { return fmt.Sprintf("https://oidc.example.com/n%d", i) }
	set, err := keystore.New(keystore.Change{At: storetest.Time(0), By: "ops"}, keystore.Spec{Name: "n0", Issuers: storetest.URLs(t, url(0)), Keys: []keystore.VerificationKey{storetest.Key(t)}})
	must(t, err)
	text := storetest.Text(t, set)
	for i := range issuers {
		name := fmt.Sprintf("n%d", i)
		data := strings.NewReplacer("name: n0\n", "name: "+name+"\n", url(0)+"\n", url(i)+"\n").Replace(text)
		must(t, os.WriteFile(filepath.Join(s.dir, name+".yaml"), []byte(data), 0o644))
	}
	v := start(t, s)
	c := v.client(t)
	early := map[int]int{}
	v.Await(t, "ready", func() error {
		status, _ := get(t, c, url(issuers-1)+"/keys.json")
		early[status]++
		if status, body := v.ask(t, "/readyz"); status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if early[404] > 0 {
		t.Errorf("answers before ready, by status: %v", early)
	}
	var wrong atomic.Int64
	var clients sync.WaitGroup
	for part := range 4 {
		clients.Go(func() {
			for i := part; i < issuers; i += 4 {
				if err := checkKeys(c, url(i)+"/keys.json", []keystore.VerificationKey{set.Keys()[0].VerificationKey}, nil); err != nil && wrong.Add(1) == 1 {
					t.Errorf("after ready, %s: %v", url(i), err)
				}
			}
		})
	}
	clients.Wait()
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d of %d issuers failed after ready", n, issuers)
	}
	if n := v.metric(t, "keypost_issuers"); n != fmt.Sprint(issuers) {
		t.Errorf("keypost_issuers is %s", n)
	}
}

// 16 restarts with one file of two keys gave two different bodies (a map's order), so that replicas disagreed and
// ETags at a CDN flapped.
func TestPeerOrderChangesWithRestarts(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) {
		for range 10 {
			var err error
			if s, err = s.Add(storetest.Change(time.Hour), storetest.Key(t)); err != nil {
				return s, err
			}
		}
		return s, nil
	})
	bodies := map[string]int{}
	for range 16 {
		v := ready(t, e.settings)
		c := v.client(t)
		resp, err := c.Get(urlB + "/keys.json")
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		bodies[resp.Header.Get("Etag")+string(body)]++
		c.CloseIdleConnections() // or the drain waits for them
		v.stop(t)
	}
	if len(bodies) != 1 {
		t.Errorf("%d different answers in 16 restarts", len(bodies))
	}
}

// A stop by SIGTERM ended with exit 1, while requests were under way.
func TestPeerExitsWithAnErrorOnSIGTERM(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	idle, err := tls.Dial("tcp", v.public, &tls.Config{RootCAs: v.roots(t), ServerName: "oidc.example.com"})
	must(t, err)
	defer idle.Close()
	get(t, v.client(t), urlA+"/keys.json")
	if code := v.stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if n := v.logged("stopped"); n != 1 {
		t.Errorf("%d lines say that it stopped", n)
	}
}

// Health was served on all interfaces, or among the documents.
func TestPeerShowsHealthInPublic(t *testing.T) {
	t.Parallel()
	v := ready(t, newEstate(t).settings)
	c := v.client(t)
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/issuers", "/index.html", "/keysets/prod-a.html"} {
		if status, _ := v.ask(t, path); status != 200 {
			t.Errorf("the admin listener answers %s with %d", path, status)
		}
		for _, host := range []string{"oidc.example.com", "prod-b.oidc.example.com"} {
			if status, _ := get(t, c, "https://"+host+path); status != 404 {
				t.Errorf("https://%s%s: %d", host, path, status)
			}
		}
	}
	for _, path := range []string{"/prod-a/keys.json", "/keys.json", "/debug/pprof/", "/prod-a"} {
		if status, _ := v.ask(t, path); status != 404 {
			t.Errorf("the admin listener answers %s with %d", path, status)
		}
	}
	if host, _, err := net.SplitHostPort(v.admin); err != nil || host != "127.0.0.1" {
		t.Errorf("the admin listener is at %s", v.admin)
	}
}

// Errors told clients about addresses inside, and quoted what they had sent.
func TestPeerErrorsTellTooMuch(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.write("broken", []byte("secret-of-the-document"))
	v := start(t, e.settings)
	v.Await(t, "prod-a", func() error {
		if s := v.statusOf(t, "prod-a"); !s.Served || v.statusOf(t, "broken").Rejected == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	for _, request := range []string{
		"GET /MARK HTTP/1.1\r\nHost: oidc.example.com",
		"GET /broken/keys.json?MARK HTTP/1.1\r\nHost: oidc.example.com",
		"MARK /prod-a HTTP/1.1\r\nHost: oidc.example.com",
		"GET / HTTP/1.1\r\nHost: MARK",
		"GET / HTTP/1.1\r\nHost: MARK MARK",
		"GET /%MARK HTTP/1.1\r\nHost: oidc.example.com",
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\nMARK MARK: x",
		"GET / MARK\r\nHost: oidc.example.com",
		"POST / HTTP/1.1\r\nHost: oidc.example.com\r\nTransfer-Encoding: MARK",
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: MARK",
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\nX-Long: MARK" + strings.Repeat("x", 32<<10),
	} {
		answer := v.send(t, request)
		for _, word := range []string{"MARK", "secret", "prod-", e.dir, "127.0.0.1", "goroutine", ".go:"} {
			if strings.Contains(answer, word) {
				t.Errorf("%.60q is answered with %q, which tells %q", request, answer, word)
			}
		}
		if strings.HasPrefix(answer, "HTTP/1.1 2") || strings.HasPrefix(answer, "HTTP/1.1 3") {
			t.Errorf("%.60q is answered with %.40q", request, answer)
		}
	}
}

// A replica that was started while its store was down had nothing; hosts that nobody had asked for before were
// answered with 502. Here the directory is the last good state, whole.
func TestPeerColdStartDuringAnOutage(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	must(t, os.Chmod(e.dir, 0o555)) // anyone who writes it is gone
	t.Cleanup(func() { must(t, os.Chmod(e.dir, 0o755)) })
	if os.Getuid() == 0 {
		e.uid = 65534
	}
	v := ready(t, e.settings)
	c := v.client(t)
	must(t, checkKeys(c, urlA+"/keys.json", []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked}))
	must(t, checkKeys(c, urlShared+"/keys.json", []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked}))
	must(t, checkKeys(c, urlB+"/keys.json", nil, nil))
}

// A body was printed as a format: a kid with a percent sign came out as something else.
func TestPeerPrintsBodiesAsFormats(t *testing.T) {
	t.Parallel()
	const kid = `100%s%d%!v(MISSING)%%2F`
	data, err := json.Marshal(jose.JSONWebKey{Key: storetest.Key(t).Key(), KeyID: kid})
	must(t, err)
	keys, err := pubkey.Parse("test", data)
	must(t, err)
	e := newEstate(t)
	e.create("prod-k", []string{"https://oidc.example.com/prod-k"}, keys...)
	v := ready(t, e.settings)
	_, body := get(t, v.client(t), "https://oidc.example.com/prod-k/keys.json")
	var set jose.JSONWebKeySet
	must(t, json.Unmarshal([]byte(body), &set))
	if len(set.Key(kid)) != 1 {
		t.Errorf("no key %q in %s", kid, body)
	}
}

// Requests while keys changed were a data race (start looks for the detector's report), and nobody answered 304.
func TestPeerRacesWithItsOwnUpdates(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	p := v.rely(t, urlA, []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked})
	b := v.rely(t, urlB, nil, nil)
	etags := map[string]bool{}
	c := v.client(t)
	for range 20 {
		e.update("prod-b", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Add(storetest.Change(time.Hour), storetest.Key(t))
		})
		resp, err := c.Get(urlB + "/keys.json")
		must(t, err)
		must(t, resp.Body.Close())
		etags[resp.Header.Get("Etag")] = true
		p.more(3)
	}
	p.end()
	b.end()
	if len(etags) < 2 {
		t.Errorf("%d ETags in 20 changes", len(etags))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, urlA+"/keys.json", nil)
	must(t, err)
	for want, etag := range map[int]string{200: `"x"`, 304: "*"} {
		req.Header.Set("If-None-Match", etag)
		resp, err := c.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != want {
			t.Errorf("If-None-Match %s: %d", etag, resp.StatusCode)
		}
	}
}
