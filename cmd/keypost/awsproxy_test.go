package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
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
	if !known {
		http.Error(w, "no such host", http.StatusBadGateway)
		return
	}
	if r.Method != http.MethodConnect {
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Host = "", address // the Host header stays: it is signed
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
		return
	}
	f.tunnel(w, address)
}

func (f *forwarder) tunnel(w http.ResponseWriter, address string) {
	there, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { _, _ = io.Copy(there, here) }()
	_, _ = io.Copy(here, there)
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
