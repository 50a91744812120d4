package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

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
	State tls.ConnectionState
	Err   error
}

// reply is an answer, the error in its place, or neither: what was not asked because an earlier answer was missing.
type reply struct {
	response
	Asked bool
	Err   error
}

// dialError is an error from before the first byte of TLS.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// reached reports whether something accepted a connection.
func (l look) reached() bool {
	_, dial12 := errors.AsType[*dialError](l.TLS12.Err)
	_, dial13 := errors.AsType[*dialError](l.TLS13.Err)
	return l.Asked && (!dial12 || !dial13)
}

// hasError reports whether no connection was accepted, for one of these reasons.
func (l look) hasError(reasons ...syscall.Errno) bool {
	return l.Asked && !l.reached() && slices.ContainsFunc(reasons, func(e syscall.Errno) bool { return errors.Is(l.TLS12.Err, e) })
}

// replies returns the answers that arrived.
func (l look) replies() []response {
	var all []response
	for _, r := range []reply{l.Discovery, l.JWKS, l.Alias} {
		if r.Asked && r.Err == nil {
			all = append(all, r.response)
		}
	}
	return all
}

// looks asks every address of the issuer, several at a time, within the time that a visit may take.
func (o Options) looks(ctx context.Context, u keystore.IssuerURL) ([]look, error) {
	addresses, err := o.addresses(ctx, u)
	if err != nil {
		return nil, err
	}
	all := make([]look, len(addresses))
	for i, address := range addresses {
		all[i].Address = address
	}
	ctx, cancel := context.WithTimeout(ctx, patienceOfVisit*o.patience)
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

// patienceOfVisit is how many answers' time all of a visit may take.
const patienceOfVisit = 12

// look asks one address, and stops asking when it lets an answer wait: AWS would have given up there.
func (o Options) look(ctx context.Context, u keystore.IssuerURL, address string) look {
	a := asker{client: newClient(o.RootCAs, o.pinned(u, address), o.patience)}
	l := look{Address: address, Asked: true}
	l.TLS12, l.TLS13 = o.handshakes(ctx, u, address)
	if l.TLS12.Err != nil && l.TLS13.Err != nil {
		return l
	}
	l.Discovery = a.get(ctx, u.String()+discoveryPath)
	jwksURI := ""
	if l.Discovery.Err == nil && l.Discovery.Status == 200 {
		if d, err := parseDiscovery(l.Discovery.response); err == nil {
			jwksURI = d.JWKSURI
		}
	}
	if strings.HasPrefix(jwksURI, "https://") {
		l.JWKS = a.get(ctx, jwksURI)
	}
	if alias := u.String() + aliasPath; l.JWKS.Asked && alias != jwksURI {
		l.Alias = a.get(ctx, alias)
	}
	l.Head = a.head(ctx, u.String())
	return l
}

// asker asks one question after the other until one gets no answer in time.
type asker struct {
	client *Client
	tired  bool
}

func (a *asker) get(ctx context.Context, url string) reply {
	if a.tired {
		return reply{}
	}
	answer, err := a.client.get(ctx, url)
	a.tired = isTimeout(err)
	return reply{response: answer, Asked: true, Err: err}
}

func (a *asker) head(ctx context.Context, url string) reply {
	if a.tired {
		return reply{}
	}
	answer, err := a.client.head(ctx, url)
	return reply{response: answer, Asked: true, Err: err}
}

// pinned dials address in place of the issuer's host. With --connect nothing else is dialled at all.
func (o Options) pinned(u keystore.IssuerURL, address string) DialFunc {
	return func(ctx context.Context, network, asked string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(asked)
		switch {
		case err != nil || o.Connect != "":
			return o.DialContext(ctx, network, address)
		case host != u.Host(): // jwks_uri may lead elsewhere, which is a finding of its own
			return o.DialContext(ctx, network, asked)
		}
		ip, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return o.DialContext(ctx, network, net.JoinHostPort(ip, port))
	}
}

// handshakes tries both versions of TLS at once, so that a silent server is known after one wait.
func (o Options) handshakes(ctx context.Context, u keystore.IssuerURL, address string) (tls12, tls13 handshake) {
	var wait sync.WaitGroup
	wait.Go(func() { tls12 = o.handshake(ctx, u, address, tls.VersionTLS12) })
	wait.Go(func() { tls13 = o.handshake(ctx, u, address, tls.VersionTLS13) })
	wait.Wait()
	return tls12, tls13
}

func (o Options) handshake(ctx context.Context, u keystore.IssuerURL, address string, version uint16) handshake {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	conn, err := o.DialContext(ctx, "tcp", address)
	if err != nil {
		return handshake{Err: &dialError{err}}
	}
	defer func() { _ = conn.Close() }()
	tc := tls.Client(conn, &tls.Config{ServerName: u.Host(), RootCAs: o.RootCAs, MinVersion: version, MaxVersion: version})
	if err := tc.HandshakeContext(ctx); err != nil {
		return handshake{Err: err}
	}
	return handshake{State: tc.ConnectionState()}
}

// patience is how long an answer may take: AWS gives up after five seconds.
//
// Source: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken
const patience = 5 * time.Second
