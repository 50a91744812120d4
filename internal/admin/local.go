package admin

import (
	"net/http"
	"net/netip"
	"strings"
)

// Local serves next to clients on this machine, which a port-forward is too, and to others only if everybody is set.
//
// A client on this machine may be the browser of somebody who has opened a stranger's page, whose name the stranger points at
// 127.0.0.1 once it is loaded (DNS rebinding): the page may then read what it asks for, since the browser takes both for one
// site. Such a request names the stranger's host, and an IP address or localhost is nobody's name. So a client on this machine
// is answered only if it asks for one of these, whatever everybody says.
//
// A request that a proxy on this machine passes on is somebody else's, and is refused if the proxy says so or leaves the name
// that was asked for. One that does neither, as nginx with only proxy_pass, looks like a client on this machine and is
// answered. Sidecars of a mesh connect from other addresses of 127.0.0.0/8, so only the two usual ones count as this machine.
func Local(next http.Handler, everybody bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := fromHere(r.RemoteAddr)
		switch {
		case local && !namesAddress(r.Host):
			http.Error(w, "ask for this by localhost or by an IP address", http.StatusForbidden)
		case !everybody && (!local || forwarded(r.Header)):
			http.Error(w, "only clients on this machine are answered here, as through kubectl port-forward, unless admin.page is true in the configuration of keypostd", http.StatusForbidden)
		default:
			w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
			next.ServeHTTP(w, r)
		}
	})
}

func fromHere(remote string) bool {
	client, err := netip.ParseAddrPort(remote)
	at := client.Addr().Unmap()
	return err == nil && (at == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || at == netip.IPv6Loopback())
}

// namesAddress reports whether a Host field has localhost or an IP address, with or without a port.
func namesAddress(host string) bool {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return at.Addr().Zone() == ""
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && at.Zone() == ""
}

// forwarded reports whether a proxy says that it passes the request on (RFC 7239, RFC 9110 section 7.6.3, and what is in use).
func forwarded(h http.Header) bool {
	for _, field := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if _, there := h[field]; there {
			return true
		}
	}
	return false
}
