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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keypost/keypost/internal/devca"
	"github.com/keypost/keypost/issuer/listen"
	"github.com/keypost/keypost/test/process"
)

// What FuzzConnection does with its bytes.
const (
	asHTTP1  = iota // sends them to a listener without TLS
	asTLS           // sends them to a listener with TLS, in place of a handshake
	asFrames        // sends them as HTTP/2 frames after a handshake, the preface and the settings; the last is completed
	asHTTP2         // sends them after a handshake that agreed on HTTP/2, in place of the preface
	fuzzKinds
)

// most is how long an input may be: a header too large fits, and an HTTP/2 client that is not read slowly.
const most = 18 << 10

// FuzzConnection writes arbitrary bytes to a connection of everything that keypostd puts between a stranger and a
// document, on loopback: what comes back is well-formed HTTP (or TLS), a document is served only to a request that names
// its host and path exactly, nothing panics, and when the clients have gone nothing is left of them.
//
// The seeds in testdata are the requests of test/contract/testdata/http and sequences of frames.
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
		case asFrames:
			e.frames(t, data)
		case asHTTP2:
			if got := exchange(t, e.dialTLS(t), data); len(got) > 0 { // settings, at least, and whatever the bytes were
				e.judgeHTTP2(t, data, got)
			}
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
		ServerName: "oidc.example.com", InsecureSkipVerify: true, NextProtos: []string{"h2"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}}
	sets, root := f.TempDir(), f.TempDir()
	need(f, os.CopyFS(sets, os.DirFS("../../test/contract/testdata/keysets")))
	cert, key, err := devca.Ensure(root, []string{"oidc.example.com", "*.oidc.example.com", "d111.example.net"}, time.Now())
	need(f, err)
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

// hostOnly is what counts of a Host or :authority.
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

// refusals are the bodies of answers that are no documents.
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
			t.Fatalf("%q is no answer: %v", rest, err)
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
// net/http's answer to whoever speaks HTTP without TLS.
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

// ping is the last frame that the client sends.
const ping = "the end."

// frames completes the last frame of data, sends them all and a ping, and reads until that is answered or the server
// refuses to go on.
func (e *fuzzed) frames(t *testing.T, data []byte) {
	t.Helper()
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&sent, nil)
	need(t, fr.WriteSettings())
	sent.Write(completed(data))
	need(t, fr.WritePing(false, [8]byte([]byte(ping))))
	c := e.dialTLS(t)
	defer c.Close()
	all := sent.Bytes()
	go func() { _, _ = c.Write(all) }() // the server may have enough of it before the end
	var got bytes.Buffer
	answers := http2.NewFramer(nil, io.TeeReader(c, &got))
	answers.AllowIllegalReads = true // judgeHTTP2 looks closer
	open := len(requestsOf(all))
	for answered := false; ; {
		if answered { // what is asked properly is answered in no order, and some is not, for want of a window
			need(t, c.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		}
		frame, err := answers.ReadFrame()
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() && !answered {
			t.Fatalf("no answer to a ping within %v", longest)
		}
		if err != nil {
			break
		}
		switch frame := frame.(type) {
		case *http2.PingFrame:
			answered = answered || frame.IsAck() && string(frame.Data[:]) == ping
		case *http2.GoAwayFrame:
			answered = answered || frame.ErrCode != http2.ErrCodeNo
		}
		if h := frame.Header(); h.Type == http2.FrameRSTStream || h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			open--
		}
		if answered && open <= 0 {
			break
		}
	}
	e.judgeHTTP2(t, all, got.Bytes())
}

// completed returns data with what its last frame lacks, if that is not more than a server takes.
func completed(data []byte) []byte {
	for at := 0; at < len(data); {
		if len(data)-at < 9 {
			data = append(slices.Clone(data), make([]byte, 9-(len(data)-at))...)
		}
		at += 9 + int(data[at])<<16 + int(data[at+1])<<8 + int(data[at+2])
		if lacks := at - len(data); lacks > 0 && lacks <= 16<<10 {
			data = append(slices.Clone(data), make([]byte, lacks)...)
		}
	}
	return data
}

// requestsOf returns the fields of the requests that a client has sent, by stream.
func requestsOf(sent []byte) map[uint32]map[string]string {
	all := map[uint32]map[string]string{}
	fr := http2.NewFramer(nil, bytes.NewReader(bytes.TrimPrefix(sent, []byte(http2.ClientPreface))))
	fr.AllowIllegalReads = true
	fr.SetMaxReadFrameSize(1 << 20)
	var fields map[string]string
	dec := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if _, twice := fields[f.Name]; !twice {
			fields[f.Name] = f.Value
		}
	})
	for {
		frame, err := fr.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return all
		}
		var block []byte
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			if all[frame.StreamID] == nil { // else these are trailers
				all[frame.StreamID] = map[string]string{}
			}
			block = frame.HeaderBlockFragment()
		case *http2.ContinuationFrame:
			block = frame.HeaderBlockFragment()
		default:
			continue
		}
		if fields = all[frame.Header().StreamID]; fields == nil {
			fields = map[string]string{}
		}
		if _, err := dec.Write(block); err != nil {
			return all
		}
		if frame.Header().Flags.Has(http2.FlagHeadersEndHeaders) {
			_ = dec.Close() // the server refuses what is wrong with it
		}
	}
}

// judgeHTTP2 takes apart what came back. The last frame may be cut off.
func (e *fuzzed) judgeHTTP2(t *testing.T, sent, got []byte) {
	t.Helper()
	fr := http2.NewFramer(nil, bytes.NewReader(got))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	bodies := map[uint32]string{}
	served := map[uint32]document{}
	requests := requestsOf(sent)
	for {
		frame, err := fr.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in %q", err, got)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, f := range frame.RegularFields() {
				if !slices.Contains(known, textproto.CanonicalMIMEHeaderKey(f.Name)) {
					t.Fatalf("%v in an answer", f)
				}
			}
			if frame.PseudoValue("status") != "200" {
				continue
			}
			d, ok := e.named(fieldOf(frame, "etag"), func(d document) bool { return asksHTTP2(requests[frame.StreamID], d) })
			if !ok {
				t.Fatalf("a document %s is served to %v", fieldOf(frame, "etag"), requests[frame.StreamID])
			}
			served[frame.StreamID] = d
		case *http2.DataFrame:
			bodies[frame.StreamID] += string(frame.Data())
			d, isDocument := served[frame.StreamID]
			if body := bodies[frame.StreamID]; frame.StreamEnded() && isDocument && body != d.body || frame.StreamEnded() && !isDocument && !refused(body) {
				t.Fatalf("the answer to %v is %q", requests[frame.StreamID], body)
			}
		}
	}
}

// refused reports whether body is keypostd's own refusal, or net/http's of a field of HTTP/1.
func refused(body string) bool {
	return slices.Contains(refusals, body) || strings.HasPrefix(body, "request header ") || body == ""
}

func fieldOf(frame *http2.MetaHeadersFrame, name string) string {
	for _, f := range frame.RegularFields() {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func asksHTTP2(fields map[string]string, d document) bool {
	host, has := fields[":authority"]
	if !has || host == "" {
		host = fields["host"]
	}
	path, _, _ := strings.Cut(fields[":path"], "?")
	return slices.Contains([]string{http.MethodGet, http.MethodHead}, fields[":method"]) && path == d.path && hostOnly(host) == d.host
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
