package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLocal(t *testing.T) {
	const here, byAddress = "127.0.0.1:40000", "127.0.0.1:9090"
	for _, tc := range []struct {
		name, remote, host, field string
		local, everybody          int
	}{
		{"port-forward", here, byAddress, "", 200, 200},
		{"port-forward by IPv6", "[::1]:40000", "[::1]:9090", "", 200, 200},
		{"a mapped address", "[::ffff:127.0.0.1]:40000", byAddress, "", 200, 200},
		{"localhost", here, "localhost:9090", "", 200, 200},
		{"IPv6 without a port", here, "[::1]", "", 200, 200},
		{"port-forward --address, asked from another machine", here, "192.0.2.7:9090", "", 200, 200},
		{"rebinding", here, "evil.example:9090", "", 403, 403},
		{"rebinding to a name that looks like an address", here, "127.0.0.1.evil.example:9090", "", 403, 403},
		{"a name that ends like localhost", here, "evil-localhost:9090", "", 403, 403},
		{"a zone", here, "[fe80::1%25evil]:9090", "", 403, 403},
		{"no host", here, "", "", 403, 403},
		{"a pod", "10.1.2.3:40000", "10.1.2.9:9090", "", 403, 200},
		{"a pod that says it is here", "10.1.2.3:40000", byAddress, "", 403, 200},
		{"a mesh's sidecar", "127.0.0.6:40000", "10.1.2.9:9090", "", 403, 200},
		{"a proxy on this machine", here, byAddress, "X-Forwarded-For", 403, 200},
		{"a proxy that says so as the standard does", here, byAddress, "Forwarded", 403, 200},
		{"a cache", here, byAddress, "Via", 403, 200},
		{"a proxy that says who asks", here, byAddress, "X-Real-Ip", 403, 200},
		{"a proxy that says how", here, byAddress, "X-Forwarded-Proto", 403, 200},
		{"a proxy that says for whom", here, byAddress, "X-Forwarded-Host", 403, 200},
		{"an address that cannot be read", "@", byAddress, "", 403, 200},
	} {
		for everybody, want := range map[bool]int{false: tc.local, true: tc.everybody} {
			r := httptest.NewRequest(http.MethodGet, "/issuers", http.NoBody)
			r.RemoteAddr, r.Host = tc.remote, tc.host
			if tc.field != "" {
				r.Header.Set(tc.field, "192.0.2.1")
			}
			w := httptest.NewRecorder()
			Local(respond("secret\n"), everybody).ServeHTTP(w, r)
			if w.Code != want || (want == 200) != (w.Body.String() == "secret\n") {
				t.Errorf("%s, for everybody %t: %d %q, want %d", tc.name, everybody, w.Code, w.Body, want)
			}
			if want == 403 && (strings.Contains(w.Body.String(), "evil") || strings.Contains(w.Body.String(), "secret")) {
				t.Errorf("%s: %q", tc.name, w.Body)
			}
			if want == 200 && w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" {
				t.Errorf("%s: %v", tc.name, w.Header())
			}
		}
	}
}
