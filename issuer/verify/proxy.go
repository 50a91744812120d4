package verify

import (
	"context"
	"net/http"
	"net/url"

	"github.com/keypost/keypost/keystore"
)

// throughProxy looks at an issuer through the proxy of the environment (HTTPS_PROXY, NO_PROXY), if that names one for it.
// TLS is spoken with the issuer itself. What is seen is what the proxy is answered, from one of the issuer's addresses
// that nobody here knows: a diagnosis, and no observation.
func (o Options) throughProxy(ctx context.Context, u keystore.IssuerURL) (l look, through string, ok bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil || o.Connect != "" {
		return look{}, "", false
	}
	proxy, err := o.proxy(req)
	if err != nil || proxy == nil {
		return look{}, "", false
	}
	l = look{Address: u.Host() + ":" + port(u), Asked: true}
	ask := func(address string) (r reply) {
		c := newClient(o.RootCAs, o.patience, o.dial)
		transport := c.http.Transport.(*http.Transport)
		transport.Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
		r.Asked = true
		r.response, r.Err = c.get(ctx, address)
		return r
	}
	l.Proxied = true
	l.ask(u, ask)
	return l, proxy.Redacted(), true
}
