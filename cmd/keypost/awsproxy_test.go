package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keypost/keypost/test/fakecloud"
)

// forwarder is a proxy that leads hosts to where they are played; all it is asked for is written to a file.
type forwarder struct {
	hosts map[string]string // host to host:port
	log   string

	mu sync.Mutex
}

// startProxy plays the company's proxy: proxy LOG HOST=ADDRESS… All commands of the script go through it.
func startProxy(ts *testscript.TestScript, args []string) {
	f := &forwarder{hosts: map[string]string{}, log: ts.MkAbs(args[0])}
	for _, arg := range args[1:] {
		host, address, _ := strings.Cut(arg, "=")
		f.hosts[host] = address
	}
	s := httptest.NewServer(f)
	ts.Defer(s.Close)
	ts.Setenv("HTTPS_PROXY", s.URL)
	ts.Setenv("HTTP_PROXY", s.URL)
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	f.note(r.Method + " " + host + "\n")
	address, known := f.hosts[host]
	switch {
	case !known:
		http.Error(w, "no such host", http.StatusBadGateway)
	case r.Method == http.MethodConnect:
		fakecloud.Tunnel(func(*http.Request) string { return address }).ServeHTTP(w, r)
	default:
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.Out.URL.Host, p.Out.Host = address, r.Host }}).ServeHTTP(w, r) // the Host header is signed
	}
}

func (f *forwarder) note(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.OpenFile(f.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = file.WriteString(line)
	_ = file.Close()
}
