package fakeazure

import (
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/fakecloud"
)

// Hosts are the names that a certificate needs for programs that find the server by its Tunnel.
func Hosts() []string {
	return slices.Concat(managementHosts, loginHosts, []string{"*.blob.core.windows.net"})
}

// known reports whether a host is Microsoft's.
func known(host string) bool {
	_, rest, _ := strings.Cut(host, ".")
	return slices.Contains(Hosts(), host) || slices.Contains(Hosts(), "*."+rest)
}

// Tunnel is an HTTPS proxy that leads Microsoft's hosts to the server, which must serve TLS at an address, and others to where
// they are.
func Tunnel(address string) http.Handler { return fakecloud.Tunnel(address, known) }

// Tunnel serves over HTTPS, and a proxy to there, until the test ends. It returns what a program needs in its environment to
// find the server at Microsoft's own names, and to trust it; SSL_CERT_FILE is Go's, NODE_EXTRA_CA_CERTS Node's.
func (s *Server) Tunnel(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	authority.New(t).Issue(t, dir, Hosts()...)
	behind := fakecloud.Start(t, "fakeazure", func(l net.Listener) error {
		return s.ServeTLS(l, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	})
	proxy := Tunnel(strings.TrimPrefix(behind, "http://"))
	url := fakecloud.Start(t, "fakeazure's proxy", func(l net.Listener) error {
		return fakecloud.Serve(l, &http.Server{Handler: proxy}) //nolint:gosec // Serve sets the limit
	})
	ca := filepath.Join(dir, "ca.pem")
	return []string{"HTTPS_PROXY=" + url, "NO_PROXY=", "SSL_CERT_FILE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca}
}
