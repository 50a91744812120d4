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

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/authority"
)

// impatient is for set-ups in which somebody waits in vain: long enough for a loaded machine, and no longer.
const impatient = 2 * time.Second

func nothing(*testing.T, *world) {}

func direct(_ *testing.T, w *world) { w.options.Dial = nil }

func withURL(u string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.options.URL = u }
}

func policy(change func(p *keystore.Policy)) func(*testing.T, *world) {
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
	everywhere := func(t *testing.T, w *world, n int) {
		var list []string
		for i := range n {
			list = append(list, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}).String())
		}
		w.anyHost, w.options.Lookup = true, lookup(list...)
	}
	return []setup{
		{"the issuer URL ends in a slash", "url-slash", "", withURL(testIssuer + "/"), right},
		{"the issuer URL has capitals in its host", "url-case", "", withURL("https://OIDC.example.com/prod-a"), right},
		{"the issuer URL has a port", "url-port", "", withURL("https://oidc.example.com:8443/prod-a"), right},
		{"the issuer URL is one of plain HTTP", "url-form", "", withURL("http://oidc.example.com/prod-a"), right},
		{"this machine's resolver cannot be reached", "dns-unanswered", "", func(_ *testing.T, w *world) {
			w.options.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "dial udp 192.0.2.53:53: connect: network is unreachable", Name: "oidc.example.com", IsTemporary: true}
			}
		}, func(_ *testing.T, w *world) { w.options.Lookup = lookup("192.0.2.1") }},
		{"the host is in no DNS", "dns-none", "", func(_ *testing.T, w *world) {
			w.options.Lookup = func(context.Context, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "oidc.example.com", IsNotFound: true}
			}
		}, func(_ *testing.T, w *world) { w.options.Lookup = lookup("192.0.2.1") }},
		{"split-horizon DNS leads to a private address", "dns-hidden", finding.Warn, func(_ *testing.T, w *world) {
			w.anyHost, w.options.Lookup = true, lookup("10.0.0.5")
		}, policy(func(p *keystore.Policy) { p.Private = true })},
		{"an IPv6 address that this machine has no route to", "address-unroutable", finding.Warn, func(_ *testing.T, w *world) {
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
		{"a host with 40 addresses", "address-too-many", "", func(t *testing.T, w *world) { everywhere(t, w, 40) }, func(t *testing.T, w *world) { everywhere(t, w, 2) }},
		{"only a proxy leads out", "proxy-used", finding.Warn, proxied, direct},
		{"nothing listens", "connection-refused", "", func(_ *testing.T, w *world) { w.options.Dial = to("127.0.0.1:1") }, direct},
		{"routers say that no way leads to an IPv4 address", "host-unreachable", "", func(_ *testing.T, w *world) {
			w.options.Dial = refusing(syscall.EHOSTUNREACH)
		}, direct},
		{"a firewall drops every packet", "connection-dropped", "", func(_ *testing.T, w *world) {
			w.options.patience, w.options.Dial = impatient, dropping
		}, direct},
		{"a server that accepts and is silent", "server-silent", "", func(t *testing.T, w *world) {
			w.options.patience, w.options.Dial = impatient, silent(t)
		}, direct},
		{"the server's clock is 2 minutes ahead", "clock-off", "", func(_ *testing.T, w *world) { w.header.Set("Date", date(2*time.Minute)) }, nil},
		{"this machine's clock is 2 minutes ahead", "clock-off", "", func(_ *testing.T, w *world) { w.options.Now = time.Now().Add(2 * time.Minute) },
			func(_ *testing.T, w *world) { w.options.Now = time.Time{} }},
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
		{"a server with TLS 1.1 only", "tls-broken", "", func(_ *testing.T, w *world) { w.tls.MinVersion, w.tls.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, nil},
		{"an expired certificate", "tls-expired", "", leaf(90*day, -time.Hour), nil},
		{"a certificate that is not valid yet", "tls-not-yet", "", leaf(-day, 90*day), nil},
		{"a certificate for another host", "tls-name", "", leaf(day, 80*day, "other.example.com"), nil},
		{"the intermediate certificate is missing", "tls-incomplete", "", func(t *testing.T, w *world) {
			template := template(day, 80*day, "oidc.example.com")
			template.IssuingCertificateURL = []string{"http://ca.example.com/intermediate.crt"}
			w.send(authority.Certify(t, w.pki.intermediate, template))
		}, nil},
		{"a certificate of an unknown CA", "tls-untrusted", "", func(t *testing.T, w *world) { w.options.RootCAs = newPKI(t).root.Pool() },
			func(_ *testing.T, w *world) { w.options.RootCAs = w.pki.root.Pool() }}, // as --ca-file does
		{"a self-signed certificate", "tls-untrusted", "", func(t *testing.T, w *world) {
			w.send(authority.Certify(t, nil, template(day, 80*day, "oidc.example.com")))
		}, nil},
		{"a certificate sent twice", "tls-doubled", "", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, w.pki.intermediate) }, nil},
		{"the certificates in the wrong order", "tls-order", "", func(_ *testing.T, w *world) { w.send(w.pki.leaf, w.pki.root, w.pki.intermediate) }, nil},
		{"an unrelated certificate in the chain", "tls-order", "", func(t *testing.T, w *world) { w.send(w.pki.leaf, w.pki.intermediate, newPKI(t).intermediate) }, nil},
		{"TLS 1.3 only", "tls-13-only", "", func(_ *testing.T, w *world) { w.tls.MinVersion = tls.VersionTLS13 }, nil},
		{"TLS 1.2 only", "tls-12-only", finding.Warn, func(_ *testing.T, w *world) { w.tls.MaxVersion = tls.VersionTLS12 }, nil},
		{"a certificate that expires in 10 days", "tls-expires-soon", finding.Warn, leaf(80*day, 10*day), nil},
		{"a wrong certificate behind a proxy", "tls-name", "", func(t *testing.T, w *world) {
			leaf(day, 80*day, "other.example.com")(t, w)
			proxied(t, w)
		}, func(t *testing.T, w *world) { w.heal(t); direct(t, w) }},
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

func fetchSetups(prefix, path string) []setup {
	with := func(h http.HandlerFunc) func(*testing.T, *world) {
		return func(_ *testing.T, w *world) { w.replace["/prod-a"+path] = h }
	}
	place := path + " "
	missing := finding.Fail
	if prefix == "alias" {
		missing = finding.Warn // kube-apiserver's own and ccoctl's issuers have none
	}
	all := []setup{
		{place + "hangs", prefix + "-silent", "", func(_ *testing.T, w *world) {
			w.options.patience = impatient
			w.hang(path)
		}, nil},
		{place + "is cut short", prefix + "-broken-off", "", with(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "1000")
			_, _ = rw.Write([]byte("{"))
		}), nil},
		{place + "redirects", prefix + "-redirect", "", with(answer(301, "Location: https://www.example.com"+path, "")), nil},
		{place + "is a 404 that a cache holds", prefix + "-404-cached", missing, func(t *testing.T, w *world) {
			policy(func(p *keystore.Policy) { p.EdgeHold = keystore.DurationPtr(time.Hour) })(t, w)
			with(answer(404, "X-Cache: Error from cloudfront, Hit", ""))(t, w)
		}, nil},
		{place + "is not there", prefix + "-not-found", missing, with(answer(404, "", "")), nil},
		{place + "asks for credentials", prefix + "-forbidden", "", with(answer(403, "", "")), nil},
		{place + "answers 503", prefix + "-status", "", with(answer(503, "", "")), nil},
		{place + "is an HTML page", prefix + "-form", "", with(answer(200, "Content-Type: text/html", "<html>")), nil},
	}
	if prefix == "jwks" {
		all = append(all, setup{"the JWKS comes after 6 seconds", "jwks-silent", "", with(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(6 * time.Second):
			case <-r.Context().Done():
			}
		}), nil})
	}
	return all
}
