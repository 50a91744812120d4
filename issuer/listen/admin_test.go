package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

func TestAdminPages(t *testing.T) {
	sick := func() error { return errors.New("issuer \"prod-a\" is not served yet:\nkey set broken") }
	extra := map[string]http.Handler{"/issuers": text("list\n"), "/livez": text("hijacked")}
	full := Admin{Metrics: text("metrics\n"), Ready: func() error { return nil }, Extra: extra}
	for _, tc := range []struct {
		admin        Admin
		method, path string
		code         int
		body         string
	}{
		{full, "GET", "/metrics", 200, "metrics\n"},
		{full, "HEAD", "/metrics", 200, ""},
		{full, "GET", "/livez", 200, "ok\n"},
		{full, "GET", "/readyz", 200, "ok\n"},
		{full, "GET", "/issuers", 200, "list\n"},
		{Admin{Ready: sick}, "GET", "/readyz", 503, "issuer \"prod-a\" is not served yet: key set broken\n"},
		{Admin{Ready: sick}, "GET", "/livez", 200, "ok\n"},
		{Admin{}, "GET", "/readyz", 200, "ok\n"},
		{Admin{}, "GET", "/metrics", 404, "not found\n"},
		{full, "POST", "/metrics", 405, "only GET and HEAD\n"},
		{full, "DELETE", "/livez", 405, "only GET and HEAD\n"},
		{full, "GET", "/", 404, "not found\n"},
		{full, "GET", "/livez/", 404, "not found\n"},
		{full, "GET", "//livez", 404, "not found\n"},
		{full, "GET", "/debug/pprof/", 404, "not found\n"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			srv := httptest.NewServer(tc.admin.handler())
			defer srv.Close()
			req, _ := http.NewRequest(tc.method, srv.URL+tc.path, nil)
			resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.code || string(body) != tc.body {
				t.Errorf("got %d %q, want %d %q", resp.StatusCode, body, tc.code, tc.body)
			}
			if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers: %v", resp.Header)
			}
			if tc.code == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow: %q", resp.Header.Get("Allow"))
			}
		})
	}
}

func TestServeAdmin(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() { done <- ServeAdmin(ctx, "127.0.0.1:0", Admin{Listening: func(a net.Addr) { bound <- a }}) }()
	address := (<-bound).String()
	if _, body, err := get(t, "http://"+address+"/livez", nil, false); err != nil || body != "ok\n" {
		t.Errorf("got %q, %v", body, err)
	}
	checkSentence(t, ServeAdmin(ctx, address, Admin{}), "open the admin listener")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
