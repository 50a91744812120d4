package issuer

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// expected holds every target that may be answered with 200, byte for byte, by host.
var expected = map[string][]string{
	"oidc.example.com": {"/a", "/a/keys.json", "/a/openid/v1/jwks", "/a/.well-known/openid-configuration"},
	"b.example.com":    {"", "/", "/keys.json", "/openid/v1/jwks", "/.well-known/openid-configuration"},
}

// mayServe decides from the raw target and Host whether 200 is right, without package url.
func mayServe(target, host string) bool {
	target, _, _ = strings.Cut(target, "?")
	scheme, rest, absolute := strings.Cut(target, "://")
	if absolute && scheme != "" && !strings.ContainsAny(scheme, "/*") {
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			slash = len(rest)
		}
		host, target = rest[:slash], rest[slash:]
	}
	if name, _, ok := strings.Cut(host, ":"); ok {
		host = name
	}
	host = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.Trim(host, " \t"))
	if to, ok := testAliases[host]; ok {
		host = to
	}
	for _, path := range expected[host] {
		if path == target {
			return true
		}
	}
	return false
}

// FuzzRequestTarget sends raw request bytes through net/http's reader into the handler: no panic, never a redirect,
// only known statuses, 200 only for the expected targets, and nothing of the request in an answer.
func FuzzRequestTarget(f *testing.F) {
	for _, seed := range []string{
		"GET /a/keys.json HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n",
		"GET /a/%6beys.json HTTP/1.1\r\nHost: oidc.example.com:443\r\n\r\n",
		"GET //a/../a/keys.json?q#f HTTP/1.0\r\n\r\n",
		"HEAD https://u:p@OIDC.example.com:1/a HTTP/1.1\r\nHost: b.example.com\r\nIf-None-Match: W/\"x\", *\r\n\r\n",
		"GET https://b.example.com HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n",
		"GET http:/a/keys.json HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n",
		"GET /a%2fkeys.json HTTP/1.1\r\nHost: origin.example.com\r\n\r\n",
		"GET /a/keys.json#/a HTTP/1.1\r\nHost: [::1]:443\r\n\r\n",
		"GET https://%62.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT b.example.com:443 HTTP/1.1\r\nHost: b.example.com:443\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: b.example.com\r\n\r\n",
		"GET * HTTP/1.1\r\nHost: b.example.com\r\n\r\n",
		"GET /\x00 HTTP/1.1\r\nHost: b.example.com\r\n\r\n",
		"GET /a\"/keys.json HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	h := newTestHandler(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // answered by net/http
		}
		checkAnswer(t, h, r, raw)
	})
}

func checkAnswer(t *testing.T, h *Handler, r *http.Request, raw []byte) {
	host := r.Header.Get("Host") // ReadRequest has taken it out: what is left in r.Host
	if host == "" {
		host = r.Host
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	switch w.Code {
	case http.StatusOK, http.StatusNotModified:
		if !mayServe(r.RequestURI, host) || (r.Method != http.MethodGet && r.Method != http.MethodHead) {
			t.Fatalf("%d for method %q, target %q, host %q", w.Code, r.Method, r.RequestURI, host)
		}
	case http.StatusNotFound:
		if mayServe(r.RequestURI, host) {
			t.Fatalf("404 for target %q, host %q", r.RequestURI, host)
		}
	case http.StatusMethodNotAllowed:
	default:
		t.Fatalf("status %d for %q", w.Code, raw)
	}
	if !knownBodies[w.Body.String()] {
		t.Fatalf("the body %q is none that was published", w.Body)
	}
	if w.Header().Get("Location") != "" || len(w.Header()) > 8 {
		t.Fatalf("headers %v", w.Header())
	}
}

// knownBodies are all that there are: a body with anything of the request in it is none of them.
var knownBodies = func() map[string]bool {
	known := map[string]bool{"": true, rootText: true, `{"keys":[]}`: true, "not found\n": true, "method not allowed\n": true}
	for _, u := range []string{urlA, "https://b.example.com"} {
		known[`{"issuer":"`+u+`","jwks_uri":"`+u+`/keys.json","response_types_supported":["id_token"],"subject_types_supported":["public"],`+
			`"id_token_signing_alg_values_supported":["RS256"],"claims_supported":["aud","exp","iat","iss","sub"]}`] = true
	}
	return known
}()
