package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/keypost/keypost/keystore"
)

// look is what one address of an issuer answered. It holds answers and no judgement of them, so that they can be
// compared with each other and with a store, or recorded.
type look struct {
	Address      string   // HOST:PORT that was dialled
	Asked        bool     // false when the visit ended before its turn came
	Origin       bool     // it is an origin behind the issuer's addresses
	Names        []string // to ask for in TLS where the issuer's host has no certificate: the origin's in the policy, if it has one
	Shielded     bool     // the operator names it, by itself or as one that the shield is shown to
	Proxied      bool     // a proxy answered: there is no handshake to look at
	TLS12, TLS13 handshake
	Discovery    reply
	JWKS         reply // at the discovery document's jwks_uri
	Alias        reply // at /openid/v1/jwks; not asked where jwks_uri points there
}

// handshake is an attempt to speak one version of TLS.
type handshake struct {
	Connected bool // something accepted the connection
	State     tls.ConnectionState
	Err       error
}

// reply is an answer, the error in its place, or neither: what was not asked because an earlier answer was missing.
type reply struct {
	response
	Asked bool
	Err   error
}

// reached reports whether something accepted a connection.
func (l look) reached() bool { return l.TLS12.Connected || l.TLS13.Connected }

// hasError reports whether no connection was accepted, for one of these reasons.
func (l look) hasError(reasons ...syscall.Errno) bool {
	return l.Asked && !l.reached() && slices.ContainsFunc(reasons, func(e syscall.Errno) bool { return errors.Is(l.TLS12.Err, e) })
}

// replies returns the documents that arrived.
func (l look) replies() []response {
	var all []response
	for _, r := range []reply{l.Discovery, l.JWKS, l.Alias} {
		if r.Asked && r.Err == nil {
			all = append(all, r.response)
		}
	}
	return all
}

// Bounds of a visit. A relying party is sent to any of a host's addresses, so each of them is asked by itself. The
// largest CDNs have about a dozen for one name.
const (
	maxAddresses    = 32
	atOnce          = 8
	patienceOfVisit = 12 // how many answers' time all of a visit may take
)

// looks asks every address of the issuer and every origin, several at a time, within the time that a visit may take.
func (o Options) looks(ctx context.Context, u keystore.IssuerURL, origins []string) ([]look, error) {
	lookup, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	addresses, err := o.Addresses(lookup, u)
	if err != nil {
		return nil, err
	}
	all := make([]look, len(addresses))
	for i, address := range addresses {
		all[i].Address = address
	}
	if o.Connect != "" { // no other is asked
		all[0].Names, origins = o.connected(lookup, origins), nil
	}
	asked := all[:min(len(all), maxAddresses)]
	behind := o.behind(lookup, addresses, origins)
	ctx, cancel = context.WithTimeout(ctx, patienceOfVisit*o.patience)
	defer cancel()
	var wait sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, list := range [][]look{asked, behind} {
		for i := range list {
			wait.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				if l := &list[i]; ctx.Err() == nil && !l.Asked {
					o.look(ctx, u, l)
				}
			})
		}
	}
	wait.Wait()
	return append(all, behind...), nil
}

// behind returns a look for each origin that is none of the addresses. One that cannot be looked up counts as asked.
func (o Options) behind(ctx context.Context, addresses, origins []string) []look {
	var all []look
	seen := slices.Clone(addresses)
	for _, origin := range origins {
		found, err := o.origin(ctx, origin)
		if err != nil {
			failed := handshake{Err: err}
			all = append(all, look{Address: origin, Asked: true, Origin: true, TLS12: failed, TLS13: failed})
		}
		for _, address := range found {
			if !slices.Contains(seen, address) {
				seen = append(seen, address)
				all = append(all, look{Address: address, Origin: true, Names: NamesOf(origin), Shielded: o.Shield.IsFor(origin)})
			}
		}
	}
	return all[:min(len(all), maxAddresses)]
}

// look asks one address, and stops asking when it lets an answer wait: AWS would have given up there.
func (o Options) look(ctx context.Context, u keystore.IssuerURL, l *look) {
	l.Asked = true
	client := o.At(u, l.Address)
	if l.Shielded = l.Shielded || o.Connect != ""; l.Shielded {
		client = o.shown(u, l.Address)
	}
	client.under(u, l.Names...)
	conf := client.http.Transport.(*http.Transport).TLSClientConfig
	names := append([]string{u.Host()}, l.Names...)
	var wait sync.WaitGroup // both versions at once, so that a silent server is known after one wait
	wait.Go(func() { l.TLS12 = o.handshake(ctx, only(conf, tls.VersionTLS12), names, l.Address) })
	wait.Go(func() { l.TLS13 = o.handshake(ctx, only(conf, tls.VersionTLS13), names, l.Address) })
	wait.Wait()
	if l.TLS12.Err != nil && l.TLS13.Err != nil {
		return
	}
	l.ask(u, func(url string) (r reply) {
		r.Asked = true
		r.response, r.Err = client.get(ctx, url)
		return r
	})
}

// ask asks for every document once, until an answer is waited for in vain.
func (l *look) ask(u keystore.IssuerURL, fetch func(url string) reply) {
	l.Discovery = fetch(u.String() + discoveryPath)
	jwksURI := l.jwksURI()
	if !strings.HasPrefix(jwksURI, "https://") {
		return
	}
	l.JWKS = fetch(jwksURI)
	if alias := u.String() + aliasPath; alias != jwksURI && !isTimeout(l.JWKS.Err) {
		l.Alias = fetch(alias)
	}
}

// jwksURI returns what the discovery document says; empty when it says nothing.
func (l *look) jwksURI() string {
	if l.Discovery.Err != nil || l.Discovery.Status != http.StatusOK {
		return ""
	}
	d, err := parseDiscovery(l.Discovery.response)
	if err != nil {
		return ""
	}
	return d.JWKSURI
}

// only returns a configuration for one version of TLS.
func only(conf *tls.Config, version uint16) *tls.Config {
	conf = conf.Clone()
	conf.MinVersion, conf.MaxVersion = version, version
	return conf
}

// handshake speaks TLS with an address, under the first of the names that it has a certificate for.
func (o Options) handshake(ctx context.Context, conf *tls.Config, names []string, address string) (h handshake) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	conn, err := dialTLS(ctx, conf, names, func() (net.Conn, error) {
		conn, err := o.dial(ctx, "tcp", address)
		h.Connected = h.Connected || err == nil
		return conn, err
	})
	if err != nil {
		h.Err = err
		return h
	}
	defer func() { _ = conn.Close() }()
	h.State = conn.ConnectionState()
	return h
}
