package fakecloud

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Dial reaches issuers. The address is that of the URL, host:443.
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Start listens on a free port of 127.0.0.1 until the test ends, has serve answer there, and gives the URL. name is what
// errors begin with.
func Start(t testing.TB, name string, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	})
	return "http://" + l.Addr().String()
}

// Serve has a server answer on l until l is closed.
func Serve(l net.Listener, server *http.Server) error {
	server.ReadHeaderTimeout = time.Minute
	defer server.Close() //nolint:errcheck // connections are cut; there is nobody to tell
	return server.Serve(l)
}

// ServeTLS is Serve over HTTPS, with HTTP/2 too. The files are PEM.
func ServeTLS(l net.Listener, server *http.Server, certificate, key string) error {
	server.ReadHeaderTimeout = time.Minute
	defer server.Close() //nolint:errcheck // connections are cut; there is nobody to tell
	return server.ServeTLS(l, certificate, key)
}

// Host is the host name that a request is for, in lower case and without its port.
func Host(r *http.Request) string {
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	return host
}

// Sleep waits, in real time, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// RoundTripper is a function that is an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Client is an HTTP client that finds the server at a URL behind every host, so that a client with a cloud's own URLs
// needs no other name resolution and no TLS. It follows no proxy. Each request is a copy that change, unless nil, may alter.
func Client(server string, change func(*http.Request)) *http.Client {
	return ClientBy(http.DefaultTransport, server, change)
}

// ClientBy is Client that sends its requests by a transport.
func ClientBy(to http.RoundTripper, server string, change func(*http.Request)) *http.Client {
	return &http.Client{Transport: RoundTripper(func(r *http.Request) (*http.Response, error) {
		u, err := url.Parse(server)
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		if r.Host == "" {
			r.Host = r.URL.Host
		}
		r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
		if change != nil {
			change(r)
		}
		return to.RoundTrip(r)
	})}
}
