package verify

import (
	"context"
	"crypto/tls"
	"errors"
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
	Address      string // HOST:PORT that was dialled
	Asked        bool   // false when the visit ended before its turn came
	TLS12, TLS13 handshake
	Discovery    reply
	JWKS         reply // at the discovery document's jwks_uri
	Alias        reply // at /openid/v1/jwks; not asked where jwks_uri points there
	Head         reply // HEAD of the issuer URL
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

// looks asks every address of the issuer, several at a time, within the time that a visit may take.
func (o Options) looks(ctx context.Context, u keystore.IssuerURL) ([]look, error) {
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
	ctx, cancel = context.WithTimeout(ctx, patienceOfVisit*o.patience)
	defer cancel()
	var wait sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i := range all[:min(len(all), maxAddresses)] {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() == nil {
				all[i] = o.look(ctx, u, all[i].Address)
			}
		})
	}
	wait.Wait()
	return all, nil
}

// look asks one address, and stops asking when it lets an answer wait: AWS would have given up there.
func (o Options) look(ctx context.Context, u keystore.IssuerURL, address string) look {
	l := look{Address: address, Asked: true}
	var wait sync.WaitGroup // both versions at once, so that a silent server is known after one wait
	wait.Go(func() { l.TLS12 = o.handshake(ctx, u, address, tls.VersionTLS12) })
	wait.Go(func() { l.TLS13 = o.handshake(ctx, u, address, tls.VersionTLS13) })
	wait.Wait()
	if l.TLS12.Err != nil && l.TLS13.Err != nil {
		return l
	}
	client, late := o.At(u, address), false
	ask := func(method, url string) (r reply) {
		if late {
			return reply{}
		}
		r.Asked = true
		r.response, r.Err = client.do(ctx, method, url)
		late = isTimeout(r.Err)
		return r
	}
	l.Discovery = ask(http.MethodGet, u.String()+discoveryPath)
	jwksURI := ""
	if l.Discovery.Err == nil && l.Discovery.Status == http.StatusOK {
		if d, err := parseDiscovery(l.Discovery.response); err == nil {
			jwksURI = d.JWKSURI
		}
	}
	if strings.HasPrefix(jwksURI, "https://") {
		l.JWKS = ask(http.MethodGet, jwksURI)
	}
	if alias := u.String() + aliasPath; l.JWKS.Asked && alias != jwksURI {
		l.Alias = ask(http.MethodGet, alias)
	}
	l.Head = ask(http.MethodHead, u.String())
	return l
}

func (o Options) handshake(ctx context.Context, u keystore.IssuerURL, address string, version uint16) handshake {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	conn, err := o.dial(ctx, "tcp", address)
	if err != nil {
		return handshake{Err: err}
	}
	defer func() { _ = conn.Close() }()
	tc := tls.Client(conn, &tls.Config{ServerName: u.Host(), RootCAs: o.RootCAs, MinVersion: version, MaxVersion: version})
	if err := tc.HandshakeContext(ctx); err != nil {
		return handshake{Connected: true, Err: err}
	}
	return handshake{Connected: true, State: tc.ConnectionState()}
}
