package fakecloud

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
)

// Among reports whether a host is one of hosts, as a certificate has them: "*.example.com" is every host with one label more.
func Among(hosts []string, host string) bool {
	_, rest, _ := strings.Cut(host, ".")
	return slices.Contains(hosts, host) || slices.Contains(hosts, "*."+rest)
}

// Tunnel is an HTTPS proxy that leads a request to an address, which must speak TLS.
func Tunnel(lead func(r *http.Request) (address string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
			return
		}
		var d net.Dialer
		there, err := d.DialContext(r.Context(), "tcp", lead(r))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer there.Close() //nolint:errcheck // both ways have ended
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer here.Close() //nolint:errcheck // both ways have ended
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{}, 2)
		join := func(a io.Writer, b io.Reader) { _, _ = io.Copy(a, b); done <- struct{}{} }
		go join(there, here)
		go join(here, there)
		<-done
	})
}

// StartTunnel has serve answer over HTTPS for a cloud's hosts, and a Tunnel lead there, until the test ends: so programs that know
// nothing of a fake find it at the cloud's own host names. Hosts that are not [Among] them are led to where they are. It returns what a
// program needs in its environment to find the server at the cloud's own names, and to trust it: SSL_CERT_FILE is Go's,
// NODE_EXTRA_CA_CERTS Node's. name is what errors begin with; serve is given PEM files.
func StartTunnel(t testing.TB, name string, hosts []string, serve func(l net.Listener, certificate, key string) error) []string {
	t.Helper()
	dir := t.TempDir()
	authority.New(t).Issue(t, dir, hosts...)
	behind := Start(t, name, func(l net.Listener) error {
		return serve(l, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	})
	proxy := &http.Server{Handler: Tunnel(func(r *http.Request) string { //nolint:gosec // Serve sets the limit
		if Among(hosts, Host(r)) {
			return strings.TrimPrefix(behind, "http://")
		}
		return r.Host
	})}
	url := Start(t, name+"'s proxy", func(l net.Listener) error { return Serve(l, proxy) })
	ca := filepath.Join(dir, "ca.pem")
	return []string{"HTTPS_PROXY=" + url, "NO_PROXY=", "SSL_CERT_FILE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca}
}
