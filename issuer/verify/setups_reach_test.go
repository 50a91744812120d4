package verify

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/authority"
)

// impatient is for set-ups in which somebody waits for nothing: long enough for a loaded machine, and no longer.
const impatient = time.Second

func nothing(*testing.T, *world) {}

func direct(_ *testing.T, w *world) { w.options.Dial = nil }

func withURL(u string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.options.URL = u }
}

func withPolicy(change func(p *keystore.Policy)) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		t.Helper()
		w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
			p := s.Policy()
			change(&p)
			return s.SetPolicy(ago(stale), p)
		})
	}
}

func lookup(list ...string) func(context.Context, string) ([]netip.Addr, error) {
	return func(context.Context, string) ([]netip.Addr, error) { return addrs(list...), nil }
}

func reachSetups() []setup {
	right := withURL(testIssuer)
	return []setup{
		{"the issuer URL ends in a slash", "url-form", "", withURL(testIssuer + "/"), right},
		{"the issuer URL is one of plain HTTP", "url-form", "", withURL("http://oidc.example.com/prod-a"), right},
		{"the host is in no DNS", "dns-none", "", func(_ *testing.T, w *world) {
			w.options.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "oidc.example.com", IsNotFound: true}
			}
		}, func(_ *testing.T, w *world) { w.options.Lookup = lookup("192.0.2.1") }},
		{"split-horizon DNS leads to a private address", "dns-hidden", finding.Warn, func(_ *testing.T, w *world) {
			w.anyHost, w.options.Lookup = true, lookup("10.0.0.5")
		}, withPolicy(func(p *keystore.Policy) { p.Private = true })},
		{"an IPv6 address that this machine has no route to", "address-unasked", finding.Warn, func(_ *testing.T, w *world) {
			w.options.Lookup = lookup("192.0.2.1", "2001:db8::7")
			w.options.hasRoute = func(address string) bool { return !isIPv6(address) }
			w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
				if isIPv6(asked) {
					return nil, syscall.ENETUNREACH
				}
				return to(w.at)(ctx, network, asked)
			}
		}, func(t *testing.T, w *world) {
			w.options.hasRoute, w.anyHost = func(string) bool { return true }, true
			direct(t, w)
		}},
		{"only a proxy leads out", "address-unasked", finding.Warn, proxied, direct},
		{"nothing listens", "connection-refused", "", func(_ *testing.T, w *world) { w.options.Dial = to("127.0.0.1:1") }, direct},
		{"a server that accepts and is silent", "connection-dropped", "", func(t *testing.T, w *world) {
			w.options.Patience, w.options.Dial = impatient, silent(t)
		}, direct},
		{"the server's clock is 2 minutes ahead", "clock-off", "", func(_ *testing.T, w *world) { w.header.Set("Date", date(2*time.Minute)) }, nil},
		{"this machine's clock is 10 minutes behind, and the token seems to come from the future", "clock-off", "", func(t *testing.T, w *world) {
			w.options.Now, w.options.Token = time.Now().Add(-10*time.Minute), w.token(t)
		}, func(_ *testing.T, w *world) { w.options.Now = time.Time{} }},
	}
}

func date(ahead time.Duration) string { return time.Now().Add(ahead).UTC().Format(http.TimeFormat) }

// proxied makes the issuer reachable through an HTTP proxy only.
func proxied(t *testing.T, w *world) {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		up, err := net.Dial("tcp", w.at)
		if err != nil || r.Method != http.MethodConnect || r.Host != "oidc.example.com:443" {
			http.Error(rw, "no", http.StatusForbidden)
			return
		}
		defer func() { _ = up.Close() }()
		down, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = down.Close() }()
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(up, down) }()
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(proxy.Close)
	address := strings.TrimPrefix(proxy.URL, "http://")
	w.options.proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://user:secret@" + address) }
	w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
		if asked == address {
			return to(address)(ctx, network, asked)
		}
		return nil, syscall.ENETUNREACH
	}
}

func tlsSetups() []setup {
	leaf := func(age, left time.Duration, names ...string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { w.send(w.pki.issueFor(t, age, left, names...), w.pki.intermediate) }
	}
	const day = 24 * time.Hour
	return []setup{
		{"a server with TLS 1.1 only", "connection-refused", "", func(_ *testing.T, w *world) { w.tls.MinVersion, w.tls.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, nil},
		{"an expired certificate", "tls-expired", "", leaf(90*day, -time.Hour), nil},
		{"a certificate for another host", "tls-name", "", leaf(day, 80*day, "other.example.com"), nil},
		{"the intermediate certificate is missing", "tls-untrusted", "", func(t *testing.T, w *world) {
			template := template(day, 80*day, "oidc.example.com")
			template.IssuingCertificateURL = []string{"http://ca.example.com/intermediate.crt"}
			w.send(authority.Certify(t, w.pki.intermediate, template))
		}, nil},
		{"a certificate of an unknown CA", "tls-untrusted", "", func(t *testing.T, w *world) { w.options.RootCAs = newPKI(t).root.Pool() },
			func(_ *testing.T, w *world) { w.options.RootCAs = w.pki.root.Pool() }}, // as --ca-file does
		{"the certificates in the wrong order", "tls-order", "", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.root, w.pki.intermediate) }, nil},
		{"TLS 1.3 only", "tls-13-only", "", func(_ *testing.T, w *world) { w.tls.MinVersion = tls.VersionTLS13 }, nil},
		{"a certificate that expires in 10 days", "tls-expired", finding.Warn, leaf(80*day, 10*day), nil},
	}
}

// alter changes what is answered at a path: its headers, and its status unless that is 0.
func (w *world) alter(path string, status int, change func(h http.Header)) {
	w.replace["/prod-a"+path] = func(rw http.ResponseWriter, r *http.Request) {
		sound := *w
		sound.replace = nil
		recorder := httptest.NewRecorder()
		sound.serve(recorder, r)
		for name, values := range recorder.Header() {
			rw.Header()[name] = values
		}
		change(rw.Header())
		if status != 0 {
			rw.WriteHeader(status)
		}
		_, _ = rw.Write(recorder.Body.Bytes())
	}
}

// fetchSetups have documents that do not come with status 200.
func fetchSetups() []setup {
	at := func(path string, h http.HandlerFunc) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.replace["/prod-a"+path] = h }
	}
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "1000")
		_, _ = rw.Write([]byte("{"))
	}
	return []setup{
		{"the discovery document is not there", "discovery-not-found", "", at(fetch.DiscoveryPath, answer(404, "", "")), nil},
		{"the discovery document asks for credentials", "discovery-forbidden", "", at(fetch.DiscoveryPath, answer(403, "", "")), nil},
		{"the discovery document redirects", "discovery-form", "", at(fetch.DiscoveryPath, answer(301, "Location: https://www.example.com/", "")), nil},
		{"the discovery document is cut short", "discovery-form", "", at(fetch.DiscoveryPath, cut), nil},
		{"the discovery document is an HTML page", "discovery-form", "", at(fetch.DiscoveryPath, answer(200, "Content-Type: text/html", "<html>")), nil},
		{"the JWKS is not there", "jwks-form", "", at(fetch.KeysPath, answer(404, "", "")), nil},
		{"the JWKS is cut short", "jwks-form", "", at(fetch.KeysPath, cut), nil},
		{"/openid/v1/jwks answers 503", "alias-differs", finding.Warn, at(fetch.AliasPath, answer(503, "", "")), nil},
	}
}
