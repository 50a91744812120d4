package issuer

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/keystore"
)

// testSnapshot serves https://oidc.example.com/a and https://b.example.com, without keys.
func testSnapshot(t testing.TB, complete bool) *snapshot {
	t.Helper()
	e := edit{}
	for _, d := range []doc{{name: "a", generation: 1}, {name: "b", generation: 1, issuers: []string{"https://b.example.com"}}} {
		v, err := newVersion(d.parse(t), keystore.DefaultCache())
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range v.places() {
			e[at] = &v.pages[i]
		}
	}
	s := new(snapshot).with(e)
	s.complete = complete
	return s
}

var testAliases = map[string]string{"origin.example.com": "oidc.example.com"}

func newTestHandler(t testing.TB) *Handler { return serving(testSnapshot(t, true), testAliases) }

// serving returns a handler that serves s for ever.
func serving(s *snapshot, aliases map[string]string) *Handler {
	p := NewPublisher(Config{})
	p.current.Store(s)
	return NewHandler(p, aliases)
}

// request reads the lines of a request as the server does.
func request(t testing.TB, lines ...string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	return r
}

func answer(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestStatus(t *testing.T) {
	h := newTestHandler(t)
	for _, tc := range []struct {
		line, host string
		want       int
	}{
		{"GET /a/keys.json", "oidc.example.com", 200},
		{"GET /a/openid/v1/jwks", "oidc.example.com", 200},
		{"GET /a/.well-known/openid-configuration", "oidc.example.com", 200},
		{"GET /a", "oidc.example.com", 200},
		{"HEAD /a/keys.json", "oidc.example.com", 200},
		{"GET /", "b.example.com", 200},
		{"GET /keys.json", "b.example.com", 200},
		{"GET /a/keys.json?x=%zz&a=b", "oidc.example.com", 200},
		{"GET /a/keys.json?", "oidc.example.com", 200},

		{"GET /a/keys.json", "OIDC.Example.COM", 200},
		{"GET /a/keys.json", "oidc.example.com:443", 200},
		{"GET /a/keys.json", "oidc.example.com:", 200},
		{"GET /a/keys.json", "oidc.example.com:443:443", 404},
		{"GET /a/keys.json", "oidc.example.com.", 200}, // the same name in DNS; Apache's cache takes it for the same
		{"GET /a/keys.json", "oidc.example.com..", 404},
		{"GET /a/keys.json", ".", 404},
		{"GET /a/keys.json", " oidc.example.com ", 200}, // optional white space (RFC 9112, section 5)
		{"GET /a/keys.json", "", 404},
		{"GET /a/keys.json", ":443", 404},
		{"GET /a/keys.json", "[::1]:443", 404},
		{"GET /a/keys.json", "127.0.0.1", 404},
		{"GET /a/keys.json", "b.example.com", 404},
		{"GET /keys.json", "oidc.example.com", 404},
		{"GET /b/keys.json", "oidc.example.com", 404},

		{"GET /a/keys.json", "origin.example.com", 200},
		{"GET /a/keys.json", "Origin.example.com:8443", 200},
		{"GET /a/keys.json", "origin.example.com.", 200},
		{"GET /a/keys.json", "Origin.example.com.:8443", 200},
		{"GET /a/keys.json", "origin.example.com..", 404},
		{"GET /keys.json", "origin.example.com", 404},
		{"GET /a/keys.json", "x.origin.example.com", 404},

		{"GET https://oidc.example.com/a/keys.json", "oidc.example.com", 200},
		{"GET https://oidc.example.com/a/keys.json", "b.example.com", 200}, // the target wins (RFC 9112, section 3.2.2)
		{"GET https://b.example.com/a/keys.json", "oidc.example.com", 404},
		{"GET http://oidc.example.com/a/keys.json", "oidc.example.com", 200},
		{"GET https://b.example.com", "oidc.example.com", 200},
		{"GET https://user@oidc.example.com/a/keys.json", "oidc.example.com", 404},
		{"GET https://:@oidc.example.com/a/keys.json", "oidc.example.com", 404},
		{"GET https:///a/keys.json", "oidc.example.com", 404},
		{"GET https:/a/keys.json", "oidc.example.com", 404},
		{"GET https:a/keys.json", "oidc.example.com", 404},
		{"GET https://b.example.com\u212a/", "b.example.com", 404},
		{"GET *", "b.example.com", 404},

		{"OPTIONS *", "b.example.com", 405},
		{"OPTIONS /a/keys.json", "oidc.example.com", 405},
		{"POST /a/keys.json", "oidc.example.com", 405},
		{"PUT /a/keys.json", "oidc.example.com", 405},
		{"PATCH /a/keys.json", "oidc.example.com", 405},
		{"DELETE /a/keys.json", "oidc.example.com", 405},
		{"TRACE /a/keys.json", "oidc.example.com", 405},
		{"CONNECT oidc.example.com:443", "oidc.example.com", 405},
		{"get /a/keys.json", "oidc.example.com", 405},
		{"PRI *", "oidc.example.com", 405},
		{"POST /nobody", "oidc.example.com", 405}, // says nothing about what exists
	} {
		t.Run(tc.line+" "+tc.host, func(t *testing.T) {
			if got := answer(h, request(t, tc.line+" HTTP/1.1", "Host: "+tc.host)).StatusCode; got != tc.want {
				t.Errorf("status %d, want %d", got, tc.want)
			}
		})
	}
}

// HTTP/2 has a host beside the path (RFC 9113, section 8.3.1). A path in absolute form is not one, and where it names another host
// the two name different documents: a cache that goes by the path would keep an issuer's document for another's.
func TestPathWithAHostOfItsOwn(t *testing.T) {
	h := newTestHandler(t)
	for target, want := range map[string]int{"/a/keys.json": 200, "https://b.example.com/a/keys.json": 404, "http://x@oidc.example.com/a/keys.json": 404} {
		r := request(t, "GET "+target+" HTTP/1.1", "Host: oidc.example.com")
		r.Host, r.Proto, r.ProtoMajor, r.ProtoMinor = "oidc.example.com", "HTTP/2.0", 2, 0 // as net/http takes it from :authority
		if got := answer(h, r).StatusCode; got != want {
			t.Errorf("%s: status %d, want %d", target, got, want)
		}
	}
}

// No letter but the ASCII ones is folded: the Kelvin sign is not a k.
func TestHostIsFoldedInASCIIOnly(t *testing.T) {
	s := new(snapshot).with(edit{{Host: "k.example.com"}: testPage("k")})
	s.complete = true
	h := serving(s, nil)
	for target, want := range map[string]int{"https://k.example.com/": 200, "https://K.example.com/": 200, "https://\u212a.example.com/": 404, "https://%E2%84%AA.example.com/": 404} {
		if got := answer(h, request(t, "GET "+target+" HTTP/1.1", "Host: x")).StatusCode; got != want {
			t.Errorf("%s: status %d, want %d", target, got, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := newTestHandler(t)
	document := http.Header{
		"Access-Control-Allow-Origin": {"*"},
		"Cache-Control":               {"public, max-age=300, stale-while-revalidate=300, stale-if-error=86400"},
		"Content-Type":                {"application/json"},
		"Content-Length":              {"11"},
		"Etag":                        {`"ljjRGRRzXQByAC3U1nxzSg"`},
		"Strict-Transport-Security":   {"max-age=31536000"},
		"X-Content-Type-Options":      {"nosniff"},
	}
	without := func(h http.Header, names ...string) http.Header {
		h = maps.Clone(h)
		for _, n := range names {
			delete(h, n)
		}
		return h
	}
	refused := func(length, cache string) http.Header {
		return http.Header{
			"Cache-Control": {cache}, "Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {length},
			"Strict-Transport-Security": {"max-age=31536000"}, "X-Content-Type-Options": {"nosniff"},
		}
	}
	notAllowed := refused("19", "no-store")
	notAllowed["Allow"] = []string{"GET, HEAD"}
	for _, tc := range []struct {
		method, path, etag, body string
		status                   int
		header                   http.Header
	}{
		{"GET", "/a/keys.json", "", `{"keys":[]}`, 200, document},
		{"HEAD", "/a/keys.json", "", "", 200, document},
		{"GET", "/a/keys.json", document["Etag"][0], "", 304, without(document, "Content-Type", "Content-Length")},
		{"HEAD", "/a/keys.json", document["Etag"][0], "", 304, without(document, "Content-Type", "Content-Length")},
		{"GET", "/x/keys.json", "", "not found\n", 404, refused("10", "public, max-age=60")},
		{"HEAD", "/x/keys.json", "", "", 404, refused("10", "public, max-age=60")},
		{"GET", "/x/keys.json", "*", "not found\n", 404, refused("10", "public, max-age=60")},
		{"POST", "/a/keys.json", "", "method not allowed\n", 405, notAllowed},
	} {
		r := request(t, tc.method+" "+tc.path+" HTTP/1.1", "Host: oidc.example.com", "If-None-Match: "+tc.etag)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tc.status || w.Body.String() != tc.body || !maps.EqualFunc(w.Header(), tc.header, slices.Equal) {
			t.Errorf("%s %s If-None-Match: %s:\ngot  %d %v %q\nwant %d %v %q", tc.method, tc.path, tc.etag, w.Code, w.Header(), w.Body, tc.status, tc.header, tc.body)
		}
	}
}

func TestRootLineAndAlias(t *testing.T) {
	h := newTestHandler(t)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(t, "GET "+path+" HTTP/1.1", "Host: oidc.example.com"))
		return w
	}
	root := get("/a")
	if root.Body.String() != rootText || root.Header().Get("Content-Type") != "text/plain; charset=utf-8" || strings.Count(rootText, "\n") != 1 {
		t.Errorf("the issuer URL itself answers %q (%v), not one line", root.Body, root.Header())
	}
	jwks, alias := get("/a/keys.json"), get("/a/openid/v1/jwks")
	if jwks.Body.String() != alias.Body.String() || !maps.EqualFunc(jwks.Header(), alias.Header(), slices.Equal) {
		t.Errorf("two JWKS paths, two answers: %v %v", jwks.Header(), alias.Header())
	}
}

func TestIfNoneMatch(t *testing.T) {
	const etag = `"abc"`
	for _, tc := range []struct {
		fields []string
		want   bool
	}{
		{nil, false},
		{[]string{""}, false},
		{[]string{`"abc"`}, true},
		{[]string{`W/"abc"`}, true},
		{[]string{`w/"abc"`}, false}, // case-sensitive (RFC 9110, section 8.8.3)
		{[]string{`abc`}, false},
		{[]string{`"ABC"`}, false},
		{[]string{`"abcd"`}, false},
		{[]string{`"x", "abc"`}, true},
		{[]string{`"x",W/"abc"`}, true},
		{[]string{"\"x\" ,\t\"abc\" "}, true},
		{[]string{`"x", "y"`}, false},
		{[]string{`"x"`, `"abc"`}, true},
		{[]string{`"x"`, `"y"`}, false},
		{[]string{`*`}, true},
		{[]string{` * `}, true},
		{[]string{`"*"`}, false},
		{[]string{`,,,`}, false},
		{[]string{`"abc`}, false},
	} {
		if got := matches(tc.fields, etag); got != tc.want {
			t.Errorf("If-None-Match %q: %v, want %v", tc.fields, got, tc.want)
		}
	}
}

// Nothing but host, path, method and If-None-Match has a say.
func TestOtherHeadersAreIgnored(t *testing.T) {
	h := newTestHandler(t)
	plain := answer(h, request(t, "GET /a/keys.json HTTP/1.1", "Host: oidc.example.com"))
	for _, line := range []string{
		"X-Forwarded-Host: b.example.com", "X-Forwarded-Proto: http", "Forwarded: host=b.example.com;proto=http", "X-Original-URL: /x", "X-Rewrite-URL: /x",
		"X-HTTP-Method-Override: DELETE", "Range: bytes=0-1", "If-Match: \"x\"", "If-Modified-Since: Fri, 20 Nov 2037 00:00:00 GMT", "If-Range: \"x\"",
		"Accept: text/html", "Accept-Encoding: gzip", "Origin: https://evil.example", "Authorization: Bearer x", "Cookie: a=b", "Upgrade: h2c",
	} {
		got := answer(h, request(t, "GET /a/keys.json HTTP/1.1", "Host: oidc.example.com", line))
		if got.StatusCode != plain.StatusCode || !maps.EqualFunc(got.Header, plain.Header, slices.Equal) {
			t.Errorf("%s changes the answer: %d %v", line, got.StatusCode, got.Header)
		}
	}
}

func TestStartingIs503(t *testing.T) {
	incomplete := testSnapshot(t, false)
	for name, s := range map[string]*snapshot{"nothing yet": new(snapshot), "not everything yet": incomplete} {
		h := serving(s, nil)
		for method, length := range map[string]int{"GET": len("not ready\n"), "HEAD": 0} {
			got := answer(h, request(t, method+" /x/keys.json HTTP/1.1", "Host: oidc.example.com"))
			body, err := io.ReadAll(got.Body)
			if err != nil || got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Cache-Control") != "no-store" || len(body) != length || got.Header.Get("Content-Length") != "10" {
				t.Errorf("%s, %s: %d, %v, %d bytes, %v", name, method, got.StatusCode, got.Header, len(body), err)
			}
		}
	}
	h := serving(incomplete, nil)
	if got := answer(h, request(t, "GET /a/keys.json HTTP/1.1", "Host: oidc.example.com")); got.StatusCode != http.StatusOK {
		t.Errorf("what is there already answers %d", got.StatusCode)
	}
}

// kept is a ResponseWriter that is used again, as net/http uses its header map per connection.
type kept struct {
	header http.Header
	bytes  int
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) Write(p []byte) (int, error) { k.bytes += len(p); return len(p), nil }
func (k *kept) WriteHeader(int)             {}

// WriteString is what net/http's ResponseWriters have too.
func (k *kept) WriteString(s string) (int, error) { k.bytes += len(s); return len(s), nil }

func TestNoAllocation(t *testing.T) {
	h := newTestHandler(t)
	for name, r := range map[string]*http.Request{
		"hit":       request(t, "GET /a/keys.json HTTP/1.1", "Host: oidc.example.com"),
		"discovery": request(t, "GET /a/.well-known/openid-configuration HTTP/1.1", "Host: oidc.example.com:443"),
		"HEAD":      request(t, "HEAD /a/openid/v1/jwks HTTP/1.1", "Host: oidc.example.com"),
		"304":       request(t, "GET /a/keys.json HTTP/1.1", "Host: oidc.example.com", `If-None-Match: "x", "ljjRGRRzXQByAC3U1nxzSg"`),
		"alias":     request(t, "GET /a/keys.json HTTP/1.1", "Host: origin.example.com"),
		"404":       request(t, "GET /x HTTP/1.1", "Host: oidc.example.com"),
		"405":       request(t, "POST /x HTTP/1.1", "Host: oidc.example.com"),
	} {
		w := &kept{header: http.Header{}}
		if n := testing.AllocsPerRun(100, func() { clear(w.header); h.ServeHTTP(w, r) }); n != 0 {
			t.Errorf("%s: %v allocations per request, want none", name, n)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	h := newTestHandler(t)
	for _, line := range []string{"GET /a", "GET /a/keys.json", "GET /a/keys.json", "HEAD /a/openid/v1/jwks", "GET /x", "GET /y", "PUT /a"} {
		answer(h, request(t, line+" HTTP/1.1", "Host: oidc.example.com"))
	}
	answer(h, request(t, "GET /a/.well-known/openid-configuration HTTP/1.1", "Host: oidc.example.com", "If-None-Match: *"))
	want := `
# HELP keypost_http_requests_total Requests on the public listener, by the document they asked for and the status of the answer.
# TYPE keypost_http_requests_total counter
keypost_http_requests_total{code="200",document="discovery"} 0
keypost_http_requests_total{code="200",document="issuer"} 1
keypost_http_requests_total{code="200",document="jwks"} 2
keypost_http_requests_total{code="200",document="jwks_alias"} 1
keypost_http_requests_total{code="304",document="discovery"} 1
keypost_http_requests_total{code="304",document="issuer"} 0
keypost_http_requests_total{code="304",document="jwks"} 0
keypost_http_requests_total{code="304",document="jwks_alias"} 0
keypost_http_requests_total{code="404",document="none"} 2
keypost_http_requests_total{code="405",document="none"} 1
keypost_http_requests_total{code="503",document="none"} 0
`
	if err := testutil.CollectAndCompare(h, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Whatever is answered is counted once, under the status that the client sees.
func TestEveryAnswerIsCounted(t *testing.T) {
	for _, s := range []*snapshot{new(snapshot), testSnapshot(t, true)} {
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			for _, target := range []string{"/a", "/a/keys.json", "/a/openid/v1/jwks", "/a/.well-known/openid-configuration", "/x", "*"} {
				for _, field := range []string{"Accept: */*", "If-None-Match: *"} {
					h := serving(s, nil)
					status := answer(h, request(t, method+" "+target+" HTTP/1.1", "Host: oidc.example.com", field)).StatusCode
					if all, own := counted(t, h, status); all != 1 || own != 1 {
						t.Errorf("%s %s, %s: status %d is counted %v times, %v answers in all", method, target, field, status, own, all)
					}
				}
			}
		}
	}
}

// counted returns how many answers h has counted, and how many of them with a status.
func counted(t *testing.T, h *Handler, status int) (all, own float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(h)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		all += m.GetCounter().GetValue()
		for _, l := range m.GetLabel() {
			if l.GetName() == "code" && l.GetValue() == strconv.Itoa(status) {
				own += m.GetCounter().GetValue()
			}
		}
	}
	return all, own
}
