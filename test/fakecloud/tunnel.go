package fakecloud

import (
	"io"
	"net"
	"net/http"
)

// Tunnel is an HTTPS proxy that leads every host to the server at one address, which must speak TLS: so programs that know
// nothing of a fake find it at a cloud's own host names (HTTPS_PROXY), once they trust its certificate. Hosts that known does
// not know are led to where they are.
func Tunnel(address string, known func(host string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
			return
		}
		to := address
		if !known(Host(r)) {
			to = r.Host
		}
		var d net.Dialer
		there, err := d.DialContext(r.Context(), "tcp", to)
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
