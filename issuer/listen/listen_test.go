package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/test/authority"
)

var okHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, r.Proto)
})

// start runs Serve on a free loopback port. The test fails if Serve does not
// return nil once the test is over.
func start(t *testing.T, c Config) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	bound, done := make(chan net.Addr, 1), make(chan error, 1)
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 1024
	}
	c.Listening = func(a net.Addr) { bound <- a }
	go func() { done <- Serve(ctx, c) }()
	stopped := false
	stop = func() error { stopped = true; cancel(); return <-done }
	t.Cleanup(func() {
		if !stopped {
			if err := stop(); err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	select {
	case a := <-bound:
		return a.String(), stop
	case err := <-done:
		t.Fatalf("Serve: %v", err)
		return "", nil
	}
}

// site is a server with one certificate, and what a client needs to trust it.
type site struct {
	address string
	root    *authority.Authority
	metrics *prometheus.Registry
	stop    func() error
}

func startSite(t *testing.T, c Config, names ...string) site {
	t.Helper()
	root := authority.Named(t, "root", nil)
	pair := writePair(t, t.TempDir(), "tls", root.Leaf(t, append(names, "oidc.example.com")...))
	files, err := LoadFiles([]Pair{pair}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := site{root: root, metrics: prometheus.NewRegistry()}
	c.Certificates, c.Metrics = files, s.metrics
	if c.Handler == nil {
		c.Handler = okHandler
	}
	s.address, s.stop = start(t, c)
	return s
}

func (s site) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.root.Pool(), ServerName: "oidc.example.com"}
}

func (s site) dial(t *testing.T) *tls.Conn {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", s.address, s.clientTLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second)) // a hang fails instead of hanging
	return conn
}

// get asks over a connection of its own.
func get(t *testing.T, url string, conf *tls.Config, http2 bool) (*http.Response, string, error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: http2, DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr, Timeout: 20 * time.Second}).Get(url)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out: %s", what)
}

func TestProtocols(t *testing.T) {
	s := startSite(t, Config{})
	for _, tc := range []struct {
		version uint16
		http2   bool
		want    string
	}{
		{tls.VersionTLS12, false, "HTTP/1.1"},
		{tls.VersionTLS12, true, "HTTP/1.1"},
		{tls.VersionTLS13, false, "HTTP/1.1"},
		{tls.VersionTLS13, true, "HTTP/1.1"},
	} {
		t.Run(fmt.Sprintf("%s, offers HTTP/2: %v", tls.VersionName(tc.version), tc.http2), func(t *testing.T) {
			conf := s.clientTLS()
			conf.MinVersion, conf.MaxVersion = tc.version, tc.version
			resp, body, err := get(t, "https://"+s.address, conf, tc.http2)
			if err != nil {
				t.Fatal(err)
			}
			if body != tc.want || resp.TLS.Version != tc.version {
				t.Errorf("got %s over %s, want %s", body, tls.VersionName(resp.TLS.Version), tc.want)
			}
		})
	}
	conf := s.clientTLS()
	conf.NextProtos = []string{"h2"}
	if c, err := tls.Dial("tcp", s.address, conf); err == nil {
		t.Errorf("one that speaks nothing but HTTP/2 has got %q", c.ConnectionState().NegotiatedProtocol)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	s := startSite(t, Config{})
	for _, v := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		conf := s.clientTLS()
		conf.MinVersion, conf.MaxVersion = v, v
		if _, _, err := get(t, "https://"+s.address, conf, false); err == nil {
			t.Errorf("%s was accepted", tls.VersionName(v))
		}
	}
}

// lax is a Certificates that would permit TLS 1.0.
type lax struct{ Certificates }

func (l lax) TLSConfig() *tls.Config {
	c := l.Certificates.TLSConfig()
	c.MinVersion = tls.VersionTLS10
	return c
}

func TestTLSFloorHoldsForAnyCertificates(t *testing.T) {
	root := authority.Named(t, "root", nil)
	files, err := LoadFiles([]Pair{writePair(t, t.TempDir(), "tls", root.Leaf(t, "a.example"))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	address, _ := start(t, Config{Handler: okHandler, Certificates: lax{files}})
	conf := &tls.Config{RootCAs: root.Pool(), ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if _, _, err := get(t, "https://"+address, conf, false); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

func TestPlainHTTP(t *testing.T) {
	address, _ := start(t, Config{Handler: okHandler})
	if _, body, err := get(t, "http://"+address, nil, false); err != nil || body != "HTTP/1.1" {
		t.Errorf("got %q, %v", body, err)
	}
}

func TestSNI(t *testing.T) {
	root := authority.Named(t, "root", nil)
	dir := t.TempDir()
	pairs := []Pair{
		writePair(t, dir, "first", root.Leaf(t, "first.example.com")),
		writePair(t, dir, "wild", root.Leaf(t, "*.oidc.example.com")),
		writePair(t, dir, "exact", root.Leaf(t, "prod-a.oidc.example.com", "first.example.com")),
	}
	files, err := LoadFiles(pairs, []string{"first.example.com", "*.oidc.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	address, _ := start(t, Config{Handler: okHandler, Certificates: files})
	for sni, want := range map[string]string{
		"first.example.com":       "first.example.com", // the first of two that bear the name
		"prod-a.oidc.example.com": "prod-a.oidc.example.com",
		"PROD-A.oidc.Example.com": "prod-a.oidc.example.com",
		"prod-b.oidc.example.com": "*.oidc.example.com",
		"a.b.oidc.example.com":    "first.example.com",
		"oidc.example.com":        "first.example.com",
		"unknown.example.org":     "first.example.com",
		"":                        "first.example.com",
	} {
		conn, err := tls.Dial("tcp", address, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		if err != nil {
			t.Fatalf("%q: %v", sni, err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].DNSNames[0]; got != want {
			t.Errorf("SNI %q: got the certificate of %s, want %s", sni, got, want)
		}
		conn.Close()
	}
}

// Suites in CBC mode leak by their timing; AWS needs one of the others with TLS 1.2.
func TestSuitesOfTLS12(t *testing.T) {
	s := startSite(t, Config{})
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		conf := s.clientTLS()
		conf.MaxVersion, conf.CipherSuites = tls.VersionTLS12, []uint16{suite.ID}
		if slices.Equal(suite.SupportedVersions, []uint16{tls.VersionTLS13}) {
			continue
		}
		_, _, err := get(t, "https://"+s.address, conf, false)
		// The site's key is ECDSA, so that suites for RSA find no certificate.
		want := strings.HasPrefix(suite.Name, "TLS_ECDHE_ECDSA_") && (strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "CHACHA20"))
		if (err == nil) != want {
			t.Errorf("%s: %v, want it to be accepted: %v", suite.Name, err, want)
		}
		if slices.Contains(suites(), suite.ID) && strings.Contains(suite.Name, "CBC") {
			t.Errorf("%s is offered", suite.Name)
		}
	}
}

// Where a body ends is what a proxy in front may see otherwise; what follows it must not be answered.
func TestNothingIsAnsweredAfterABody(t *testing.T) {
	s := startSite(t, Config{})
	const next = "GET /next HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n"
	for request, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n" + next:                                                               2,
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: 0\r\n\r\n" + next:                                          2,
		"GET / HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: 5\r\n\r\nhello" + next:                                     1,
		"POST / HTTP/1.1\r\nHost: oidc.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next:                       1,
		"POST / HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next:  1,
		"POST / HTTP/1.1\r\nHost: oidc.example.com\r\nTransfer-Encoding: chunked\r\nContent-Length: 52\r\n\r\n0\r\n\r\n" + next: 1,
	} {
		conn := s.dial(t)
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		_ = conn.CloseWrite()
		all, err := io.ReadAll(conn)
		if got := strings.Count(string(all), "HTTP/1.1 "); got != want || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d answers, want %d (%v):\n%s", request, got, want, err, all)
		}
	}
}

func TestSlowHeaderIsCut(t *testing.T) {
	s := startSite(t, Config{limits: limits{read: 50 * time.Millisecond}})
	conn := s.dial(t)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: oidc.exam") // on a busy machine it may be cut already
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server kept waiting for the header")
	}
}

func TestIdleConnectionIsCut(t *testing.T) {
	s := startSite(t, Config{limits: limits{idle: 50 * time.Millisecond}})
	conn := s.dial(t)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n")
	all, err := io.ReadAll(conn) // to the end: the answer, then the server hangs up
	if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(all), "HTTP/1.1 200") {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestOversizedHeader(t *testing.T) {
	s := startSite(t, Config{limits: limits{header: 4 << 10}})
	plain, _ := start(t, Config{Handler: okHandler, limits: limits{header: 4 << 10}})
	for _, url := range []string{"https://" + s.address, "http://" + plain} {
		for size, want := range map[int]int{1 << 10: 200, 64 << 10: 431} {
			tr := &http.Transport{TLSClientConfig: s.clientTLS(), DisableKeepAlives: true}
			req, _ := http.NewRequest(http.MethodGet, url, nil)
			req.Header.Set("X-Long", strings.Repeat("a", size))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Errorf("%s, %d bytes: %v", url, size, err)
				continue
			}
			if resp.Body.Close(); resp.StatusCode != want {
				t.Errorf("%s, %d bytes: got %d, want %d", url, size, resp.StatusCode, want)
			}
		}
	}
}

func TestOptionsStarReachesTheHandler(t *testing.T) {
	s := startSite(t, Config{Handler: http.NotFoundHandler()})
	conn := s.dial(t)
	fmt.Fprint(conn, "OPTIONS * HTTP/1.1\r\nHost: oidc.example.com\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %d from net/http instead of the handler's 404", resp.StatusCode)
	}
}

// gathered sums the samples of one metric.
func gathered(t *testing.T, reg prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

func TestServeRefuses(t *testing.T) {
	checkSentence(t, Serve(t.Context(), Config{Address: "127.0.0.1:none", Handler: okHandler, MaxConnections: 10}), "open the public listener: ")
	metrics := prometheus.NewRegistry()
	start(t, Config{Handler: okHandler, Metrics: metrics})
	checkSentence(t, Serve(t.Context(), Config{Address: "127.0.0.1:0", Handler: okHandler, MaxConnections: 10, Metrics: metrics}), "metrics")
}

var _ Certificates = (*Files)(nil)
