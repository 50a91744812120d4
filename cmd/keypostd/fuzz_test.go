package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/listen"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// What FuzzConnection does with its bytes.
const (
	asHTTP1  = iota // sends them to a listener without TLS
	asTLS           // sends them to a listener with TLS, in place of a handshake
	afterTLS        // sends them after a handshake
	fuzzKinds
)

// most is how long an input may be: a header too large fits.
const most = 18 << 10

// FuzzConnection writes arbitrary bytes to a connection of everything that keypostd puts between a stranger and a
// document, on loopback: what comes back is well-formed HTTP (or TLS), a document is served only to a request that names
// its host and path exactly, nothing panics, and when the clients have gone nothing is left of them.
//
// The seeds in testdata are the requests of test/contract/testdata/http.
func FuzzConnection(f *testing.F) {
	e := newFuzzed(f)
	n := 0
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		if len(data) > most {
			t.Skip()
		}
		switch kind % fuzzKinds {
		case asHTTP1:
			e.judgeHTTP1(t, data, exchange(t, dialTCP(t, e.plain), data))
		case asTLS:
			judgeTLS(t, exchange(t, dialTCP(t, e.tls), data))
		case afterTLS:
			e.judgeHTTP1(t, data, exchange(t, e.dialTLS(t), data))
		}
		if text := e.log.String(); strings.Contains(text, "panic") || strings.Contains(text, "reports trouble") {
			t.Fatalf("the log says:\n%s", text)
		}
		if n++; n%2000 == 200 { // the seeds are more than that
			e.judgeRest(t)
		}
	})
}

// document is one that is served, and where.
type document struct {
	host, path, body, etag string
}

// fuzzed is keypostd with and without TLS.
type fuzzed struct {
	plain, tls string // addresses
	documents  []document
	client     *tls.Config
	log        *process.Output
	goroutines int // while nobody is connected
}

func newFuzzed(f *testing.F) *fuzzed {
	f.Helper()
	e := &fuzzed{log: &process.Output{}, client: &tls.Config{
		ServerName: "oidc.example.com", InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}}
	sets, root := f.TempDir(), f.TempDir()
	need(f, os.CopyFS(sets, os.DirFS("../../test/contract/testdata/keysets")))
	authority.New(f).Issue(f, root, "oidc.example.com", "*.oidc.example.com", "d111.example.net")
	cert, key := filepath.Join(root, "tls.crt"), filepath.Join(root, "tls.key")
	for mode, address := range map[string]*string{"{mode: off}": &e.plain, fmt.Sprintf("{mode: files, files: [{cert: %q, key: %q}]}", cert, key): &e.tls} {
		c, err := parseConfig(fmt.Appendf(nil, "dir: %s\nissuerURLs: [\"https://oidc.example.com/{name}\", \"https://{name}.oidc.example.com\", \"prod-b=https://d111.example.net/b\"]\n"+
			"listen: {address: \"127.0.0.1:0\", maxConnections: 5000, drainDelay: 0s, tls: %s}\nlog: {level: warn}\n", sets, mode))
		need(f, err)
		d, err := newDaemon(c, "", e.log)
		need(f, err)
		*address = e.serve(f, d)
		e.documents = documentsOf(d)
	}
	if len(e.documents) < 8 {
		f.Fatalf("%d documents are served: %v", len(e.documents), e.documents)
	}
	time.Sleep(50 * time.Millisecond) // until every goroutine of the start has begun or ended
	e.goroutines = runtime.NumGoroutine()
	return e
}

// serve serves until the end of the test, and returns the address.
func (e *fuzzed) serve(f *testing.F, d *daemon) string {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	bound := make(chan net.Addr, 1)
	public := d.public()
	public.Listening = func(a net.Addr) { bound <- a }
	go d.publisher.Run(ctx)
	go func() { ended <- listen.Serve(ctx, public) }()
	address := (<-bound).String()
	process.Await(f, "ready", d.ready)
	return address
}

// documentsOf asks the handler itself for what the key sets of the contract publish.
func documentsOf(d *daemon) []document {
	var all []document
	for _, base := range []string{"oidc.example.com/prod-a", "oidc.example.com/rsa", "oidc.example.com/revoked", "prod-b.oidc.example.com", "d111.example.net/b"} {
		for _, path := range []string{"", "/.well-known/openid-configuration", "/keys.json", "/openid/v1/jwks"} {
			host, below, _ := strings.Cut(base+path, "/")
			w := httptest.NewRecorder()
			d.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://"+host+"/"+below, nil))
			if w.Code == http.StatusOK {
				all = append(all, document{host, "/" + below, w.Body.String(), w.Header().Get("Etag")})
			}
		}
	}
	return all
}

func need(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// longest is how long an exchange may take. The server's own limits are 5 s for a request and 10 s for an answer.
const longest = 25 * time.Second

func dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	need(t, err)
	need(t, c.(*net.TCPConn).SetLinger(0)) // no port waits for packets that will not come
	need(t, c.SetDeadline(time.Now().Add(longest)))
	return c
}

func (e *fuzzed) dialTLS(t *testing.T) net.Conn {
	t.Helper()
	c := tls.Client(dialTCP(t, e.tls), e.client)
	need(t, c.Handshake())
	return c
}

// exchange sends data, says that there is no more, and returns everything that comes back until the server ends it too.
func exchange(t *testing.T, c net.Conn, data []byte) []byte {
	t.Helper()
	defer c.Close()
	go func() {
		_, _ = c.Write(data) // the server may have enough of it before the end
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		t.Fatalf("the server does not end a connection that its client has ended; it sent %q", got)
	}
	return got
}

// named returns the document with an ETag, by any of its URLs that the request names.
func (e *fuzzed) named(etag string, names func(d document) bool) (document, bool) {
	for _, d := range e.documents {
		if d.etag == etag && names(d) {
			return d, true
		}
	}
	return document{}, false
}

// hostOnly is what counts of a Host.
func hostOnly(s string) string {
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		s = s[:i]
	}
	return strings.TrimSuffix(strings.ToLower(s), ".")
}

var (
	requestLine = regexp.MustCompile(`(?m)^(?:GET|HEAD) ([^ \r\n]+) HTTP/1\.\d\r?$`)
	hostLine    = regexp.MustCompile(`(?mi)^host:[ \t]*([^\r\n]*?)[ \t]*\r?$`)
	folded      = regexp.MustCompile(`[ \t]*\r?\n[ \t]+`)
	absolute    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)(.*)$`)
)

// asksHTTP1 reports whether some line of data asks for d: it says less than a parser of HTTP would, and has none of its mistakes.
func asksHTTP1(data []byte, d document) bool {
	for _, line := range requestLine.FindAllSubmatch(data, -1) {
		target, hosts := string(line[1]), []string{}
		if parts := absolute.FindStringSubmatch(target); parts != nil {
			hosts, target = []string{parts[1]}, parts[2]
		} else {
			for _, h := range hostLine.FindAllSubmatch(folded.ReplaceAll(data, []byte(" ")), -1) {
				hosts = append(hosts, string(h[1]))
			}
		}
		target, _, _ = strings.Cut(target, "?")
		if target == "" {
			target = "/" // only an absolute URL can have no path (RFC 9110, section 4.2.3)
		}
		if target == d.path && slices.ContainsFunc(hosts, func(h string) bool { return hostOnly(h) == d.host }) {
			return true
		}
	}
	return false
}

// known are the fields of all answers.
var known = []string{
	"Access-Control-Allow-Origin", "Allow", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Etag", "Strict-Transport-Security", "X-Content-Type-Options",
}

// refusals are the bodies of answers that are not documents.
var refusals = []string{"not found\n", "method not allowed\n"}

var statusLine = regexp.MustCompile(`^HTTP/1\.[01] (\d{3}) [A-Za-z: ]+$`)

// judgeHTTP1 takes apart what came back: answers that are complete and in a row, each one of those that there are.
func (e *fuzzed) judgeHTTP1(t *testing.T, data, got []byte) {
	t.Helper()
	for rest := got; len(rest) > 0; {
		end := bytes.Index(rest, []byte("\r\n\r\n"))
		if end < 0 {
			t.Fatalf("the head of an answer has no end: %q", rest)
		}
		text := textproto.NewReader(bufio.NewReader(bytes.NewReader(rest[:end+4])))
		first, _ := text.ReadLine()
		header, err := text.ReadMIMEHeader()
		status := statusLine.FindStringSubmatch(first)
		if status == nil || err != nil {
			t.Fatalf("%q is not an answer: %v", rest, err)
		}
		for name, values := range header {
			if !slices.Contains(known, name) || len(values) != 1 {
				t.Fatalf("%s: %q in %q", name, values, rest)
			}
		}
		rest = rest[end+4:]
		length, hasLength := header["Content-Length"]
		switch {
		case status[1] == "304":
		case hasLength:
			rest = e.judgeAnswer(t, answerTo1{data, status[1], length[0], header.Get("Etag"), rest})
		default: // net/http's own refusals
			if own := string(rest); !strings.HasPrefix(own, status[1]+" ") && own != "Unsupported transfer encoding" || header.Get("Connection") != "close" || status[1][0] == '2' {
				t.Fatalf("an answer without a length that net/http would not make: %q", got)
			}
			return
		}
		if header.Get("Connection") == "close" && len(rest) > 0 {
			t.Fatalf("%q follows an answer that was said to be the last", rest)
		}
	}
}

// answerTo1 is an answer with a length.
type answerTo1 struct {
	request              []byte // all that the client sent
	status, length, etag string
	rest                 []byte // from its body on
}

// judgeAnswer returns what follows it.
func (e *fuzzed) judgeAnswer(t *testing.T, a answerTo1) []byte {
	t.Helper()
	n, err := strconv.Atoi(a.length)
	if err != nil {
		t.Fatal(err)
	}
	want := func(body string) []byte {
		if len(body) != n {
			t.Fatalf("an answer of %d bytes says that it has %d", len(body), n)
		}
		return bytes.TrimPrefix(a.rest, []byte(body)) // none follows HEAD
	}
	if a.status == "200" {
		d, ok := e.named(a.etag, func(d document) bool { return asksHTTP1(a.request, d) })
		if !ok {
			t.Fatalf("a document %s is served to nobody who asked for it: %q", a.etag, a.rest)
		}
		return want(d.body)
	}
	if a.status == "417" { // net/http's own
		return want("")
	}
	for _, body := range refusals {
		if len(body) == n {
			return want(body)
		}
	}
	t.Fatalf("status %s with %d bytes: %q", a.status, n, a.rest)
	return nil
}

// judgeTLS takes apart what came back from a server that got arbitrary bytes in place of a handshake: records of TLS, or
// net/http's answer to anyone who speaks HTTP without TLS.
func judgeTLS(t *testing.T, got []byte) {
	t.Helper()
	if bytes.Equal(got, []byte("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")) {
		return
	}
	for rest := got; len(rest) > 0; {
		if len(rest) < 5 || rest[0] < 20 || rest[0] > 23 || rest[1] != 3 || len(rest) < 5+int(rest[3])<<8+int(rest[4]) {
			t.Fatalf("no record of TLS: %q", rest)
		}
		rest = rest[5+int(rest[3])<<8+int(rest[4]):]
	}
}

// judgeRest waits until nothing is left of clients that have gone. net/http holds a connection that it refused for half a
// second more, so that its answer arrives.
func (e *fuzzed) judgeRest(t *testing.T) {
	t.Helper()
	process.Await(t, "goroutines end when their clients have gone", func() error {
		if n := runtime.NumGoroutine(); n > e.goroutines+8 { // the test's own come and go
			return fmt.Errorf("%d, and %d before", n, e.goroutines)
		}
		return nil
	})
}
