package issuer

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore"
)

// testSnapshot serves https://oidc.example.com/a and https://b.example.com, without keys.
func testSnapshot(t testing.TB, complete bool) *snapshot {
	t.Helper()
	s := &snapshot{entries: map[keystore.Name]*entry{}, complete: complete}
	for _, d := range []doc{{name: "a", generation: 1}, {name: "b", generation: 1, issuers: []string{"https://b.example.com"}}} {
		v, err := newVersion(d.parse(t), keystore.DefaultCache())
		if err != nil {
			t.Fatal(err)
		}
		s.entries[keystore.Name(d.name)] = &entry{served: v}
	}
	s.pages = pagesOf(s.entries)
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

// A host is ASCII: strings.ToLower makes a k of the Kelvin sign.
func TestTheKelvinSignIsNotAK(t *testing.T) {
	v, err := newVersion(doc{name: "k", generation: 1, issuers: []string{"https://k.example.com"}}.parse(t), keystore.DefaultCache())
	if err != nil {
		t.Fatal(err)
	}
	h := serving(&snapshot{pages: pagesOf(map[keystore.Name]*entry{"k": {served: v}})}, nil)
	for host, served := range map[string]bool{"K.example.com": true, "\u212a.example.com": false} {
		r := request(t, "GET /keys.json HTTP/1.1", "Host: x")
		r.Host = host
		if got := answer(h, r).StatusCode == http.StatusOK; got != served {
			t.Errorf("%q is served: %t", host, got)
		}
	}
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
