package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
)

// look is what one address of an issuer answered. It holds answers and no judgement of them, so that they can be
// compared with each other and with a store.
type look struct {
	fetch.Endpoint
	asked     bool  // false when the visit ended before its turn came
	reached   bool  // something accepted a connection
	only13    error // what was answered to TLS 1.2, where TLS 1.3 is accepted
	Discovery reply
	JWKS      reply // at the discovery document's jwks_uri
	Alias     reply // at /openid/v1/jwks; not asked where jwks_uri points there
}

// reply is an answer, the error in its place, or neither: what was not asked because an earlier answer was missing.
type reply struct {
	fetch.Answer
	Asked bool
	Err   error
}

// replies returns the documents that arrived.
func (l look) replies() []fetch.Answer {
	var all []fetch.Answer
	for _, r := range []reply{l.Discovery, l.JWKS, l.Alias} {
		if r.Asked && r.Err == nil {
			all = append(all, r.Answer)
		}
	}
	return all
}

// Bounds of a visit.
const (
	atOnce          = 8
	patienceOfVisit = 12 // how many answers' time all of a visit may take
)

// looks asks every address of the issuer and every origin, several at a time, within the time that a visit may take.
func (o Options) looks(ctx context.Context, u keystore.IssuerURL, origins []string) ([]look, error) {
	lookup, cancel := context.WithTimeout(ctx, o.Patience)
	defer cancel()
	endpoints, err := o.Endpoints(lookup, u, origins)
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, patienceOfVisit*o.Patience)
	defer cancel()
	all := make([]look, len(endpoints))
	for i, at := range endpoints {
		all[i].Endpoint = at
	}
	each(endpoints[:min(len(endpoints), fetch.MaxAddresses)], atOnce, func(i int, at fetch.Endpoint) {
		if ctx.Err() == nil {
			all[i].ask(ctx, u, o.Reach(u, at))
		}
	})
	return all, nil
}

// each calls ask for every endpoint, several at a time.
func each(all []fetch.Endpoint, atOnce int, ask func(i int, at fetch.Endpoint)) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, at := range all {
		g.Go(func() error { ask(i, at); return nil })
	}
	_ = g.Wait()
}

// ask asks for every document once, until an answer does not come in time: AWS would have given up there. TLS 1.2 comes first, which AWS
// needs; a server that refuses it is asked again without.
func (l *look) ask(ctx context.Context, u keystore.IssuerURL, c *fetch.Client) {
	l.asked = true
	get := func(url string) (r reply) {
		r.Asked = true
		r.Answer, r.Err = c.Get(ctx, url)
		return r
	}
	if l.Err != nil {
		l.Discovery = reply{Asked: true, Err: l.Err}
		return
	}
	c.LimitTLS(tls.VersionTLS12)
	l.Discovery = get(u.String() + fetch.DiscoveryPath)
	if e, is := errors.AsType[*net.OpError](l.Discovery.Err); is && e.Op == "remote error" { // an alert
		c.LimitTLS(0)
		l.only13 = l.Discovery.Err
		l.Discovery = get(u.String() + fetch.DiscoveryPath)
	}
	l.reached = c.Accepted()
	jwksURI := l.jwksURI()
	if !strings.HasPrefix(jwksURI, "https://") {
		return
	}
	l.JWKS = get(jwksURI)
	if alias := u.String() + fetch.AliasPath; alias != jwksURI && !fetch.IsTimeout(l.JWKS.Err) {
		l.Alias = get(alias)
	}
}

// jwksURI returns what the discovery document says; empty when it says nothing.
func (l *look) jwksURI() string {
	if l.Discovery.Err != nil || l.Discovery.Status != http.StatusOK {
		return ""
	}
	d, err := fetch.ParseDiscovery(l.Discovery.Answer)
	if err != nil {
		return ""
	}
	return d.JWKSURI
}

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
	l.Address = u.Host() + ":" + fetch.Port(u)
	l.ask(ctx, u, o.Through(proxy))
	return l, proxy.Redacted(), true
}
