package admin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func respond(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

func TestAdminPages(t *testing.T) {
	sick := func() error { return errors.New("issuer \"prod-a\" is not served yet:\nkey set broken") }
	extra := map[string]http.Handler{"/issuers": respond("list\n"), "/livez": respond("hijacked")}
	full := Pages{Metrics: respond("metrics\n"), Ready: func() error { return nil }, Extra: extra}
	for _, tc := range []struct {
		pages        Pages
		method, path string
		code         int
		body         string
	}{
		{full, "GET", "/metrics", 200, "metrics\n"},
		{full, "HEAD", "/metrics", 200, ""},
		{full, "GET", "/livez", 200, "ok\n"},
		{full, "GET", "/readyz", 200, "ok\n"},
		{full, "GET", "/issuers", 200, "list\n"},
		{Pages{Ready: sick}, "GET", "/readyz", 503, "issuer \"prod-a\" is not served yet: key set broken\n"},
		{Pages{Ready: sick}, "GET", "/livez", 200, "ok\n"},
		{Pages{}, "GET", "/readyz", 200, "ok\n"},
		{full, "POST", "/metrics", 405, "only GET and HEAD\n"},
		{full, "GET", "/", 404, "not found\n"},
		{full, "GET", "//livez", 404, "not found\n"},
		{full, "GET", "/debug/pprof/", 404, "not found\n"},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			srv := httptest.NewServer(tc.pages.handler())
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

// start serves pages until the test ends.
func start(t *testing.T, pages Pages) (s *Server, stop func() error) {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0", pages, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(cancel)
	return s, func() error {
		cancel()
		return <-done
	}
}

// get asks over a new connection.
func get(address, path string) (int, string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestServe(t *testing.T) {
	s, stop := start(t, Pages{})
	if _, body, err := get(s.Addr().String(), "/livez"); err != nil || body != "ok\n" {
		t.Errorf("got %q, %v", body, err)
	}
	if _, err := Listen(t.Context(), s.Addr().String(), Pages{}, zap.NewNop()); err == nil {
		t.Error("an address that is taken was bound")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Probes and scrapes get through, however many connections others hold, and however these are left.
func TestServeWhileOthersHoldConnections(t *testing.T) {
	for name, text := range map[string]string{
		"idle":      "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
		"no header": "",
		"slow":      "GET /livez HTT",
		"stalled":   strings.Repeat("GET /large HTTP/1.1\r\nHost: a\r\n\r\n", 10),
	} {
		t.Run(name, func(t *testing.T) {
			large := strings.Repeat("x", 1<<20)
			s, stop := start(t, Pages{Metrics: respond("metrics\n"), Extra: map[string]http.Handler{"/large": respond(large)}})
			for range MaxConnections + 50 {
				connect(t, s.Addr().String(), text)
			}
			for _, path := range []string{"/livez", "/readyz", "/metrics"} {
				began := time.Now()
				status, _, err := get(s.Addr().String(), path)
				if err != nil || status != http.StatusOK || time.Since(began) > 2*time.Second {
					t.Errorf("%s: %d, %v after %v", path, status, err, time.Since(began))
				}
			}
			s.listener.mu.Lock()
			if n := len(s.listener.open); n > MaxConnections {
				t.Errorf("%d connections are open", n)
			}
			s.listener.mu.Unlock()
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// connect opens a connection and writes text.
func connect(t *testing.T, address, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}
