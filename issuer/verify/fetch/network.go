package fetch

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Network is how issuers are reached. The zero Network is the system's: its CAs, its resolver and its routes.
type Network struct {
	RootCAs *x509.CertPool                                               // nil for the system's
	Lookup  func(ctx context.Context, host string) ([]netip.Addr, error) // nil for the system's resolver
	Dial    DialFunc                                                     // nil for the system's
	Connect string                                                       // HOST:PORT to dial in place of every address; empty for none
	Shield  Shield                                                       // shown to its origins and to Connect, to nobody else

	Patience time.Duration // for one fetch; zero for 10 seconds
}

// Shield is what an origin asks of its CDN (listen.shield of keypostd). Without it the origin answers 403, and what it
// serves stays unseen.
type Shield struct {
	Header, Value string            // empty for none
	Certificates  []tls.Certificate // of the client
	// Origins are host[:port] as policies name them. A policy by itself is not enough: anyone who may write one key set would have the
	// CDN's secret sent to a server of their own.
	Origins []string
}

// IsFor reports whether the shield may be shown to an origin of a policy.
func (s Shield) IsFor(origin string) bool {
	same := func(o string) bool { return withPort(o) == withPort(origin) }
	return slices.ContainsFunc(s.Origins, same)
}

// withPort returns host[:port] with its port.
func withPort(origin string) string {
	if _, _, err := net.SplitHostPort(origin); err == nil {
		return strings.ToLower(origin)
	}
	return net.JoinHostPort(strings.ToLower(strings.Trim(origin, "[]")), "443")
}

// Addresses returns where relying parties may be sent for an issuer, as HOST:PORT, each once and in a stable order.
func (n Network) Addresses(ctx context.Context, u keystore.IssuerURL) ([]string, error) {
	if n.Connect != "" {
		return []string{n.Connect}, nil
	}
	return n.lookup(ctx, u.Host(), Port(u))
}

// lookup returns the addresses of a host, as HOST:PORT, each once and in a stable order. None is an error. Localhost stays a name: it has
// two addresses, and a development server listens at one.
func (n Network) lookup(ctx context.Context, host, port string) ([]string, error) {
	lookup := n.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return []string{net.JoinHostPort(host, port)}, nil
	}
	ips, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	var all []string
	for _, ip := range slices.Compact(ips) {
		all = append(all, net.JoinHostPort(ip.String(), port))
	}
	if len(all) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	return all, nil
}

// origin returns the addresses of host[:port].
func (n Network) origin(ctx context.Context, origin string) ([]string, error) {
	host, port, err := net.SplitHostPort(withPort(origin))
	if err != nil {
		return nil, err
	}
	return n.lookup(ctx, host, port)
}

// NamesOf returns the host names of origins, host[:port] each; an address has none.
func NamesOf(origins ...string) (names []string) {
	for _, origin := range origins {
		host, _, err := net.SplitHostPort(withPort(origin))
		if _, address := netip.ParseAddr(host); err == nil && address != nil && !slices.Contains(names, host) {
			names = append(names, host)
		}
	}
	return names
}

// Port returns the port of an issuer URL; only development URLs name one.
func Port(u keystore.IssuerURL) string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(u.String(), "https://"), "/")
	if _, port, err := net.SplitHostPort(authority); err == nil {
		return port
	}
	return "443"
}

// MaxAddresses bounds how many addresses are asked. A relying party is sent to any of a host's, so each is asked by itself. The largest
// CDNs have about a dozen for one name.
const MaxAddresses = 32

// Endpoint is where an issuer is asked.
type Endpoint struct {
	Address  string   // HOST:PORT to dial
	Named    bool     // the policy names it as an origin
	Origin   bool     // it is that, and no address of the issuer's host
	Names    []string // to ask for in TLS where the issuer's host has no certificate: what the policy calls an origin
	Shielded bool     // the operator names it as one that the shield is shown to
	Err      error    // the origin cannot be looked up
}

// Endpoints returns where an issuer is asked, each once: the addresses of its host, and behind them those of its origins. With Connect
// that is the only one. An error means that there is no address.
func (n Network) Endpoints(ctx context.Context, u keystore.IssuerURL, origins []string) (all []Endpoint, err error) {
	if n.Connect != "" {
		return []Endpoint{{Address: n.Connect, Names: n.connected(ctx, origins), Shielded: true}}, nil
	}
	addresses, err := n.Addresses(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", u.Host(), err)
	}
	for _, a := range addresses {
		all = append(all, Endpoint{Address: a})
	}
	for _, origin := range origins {
		found, err := n.origin(ctx, origin)
		if err != nil {
			all = append(all, Endpoint{Address: origin, Named: true, Origin: true, Err: err})
		}
		for _, a := range found {
			if i := slices.IndexFunc(all, func(e Endpoint) bool { return e.Address == a }); i >= 0 {
				all[i].Named = true
			} else {
				all = append(all, Endpoint{Address: a, Named: true, Origin: true, Names: NamesOf(origin), Shielded: n.Shield.IsFor(origin)})
			}
		}
	}
	return all, nil
}

// connected returns the names of the origin that Connect is: as the operator calls it, and those in the policy that lead there.
func (n Network) connected(ctx context.Context, origins []string) []string {
	names := slices.Clone(n.Shield.Origins)
	for _, origin := range origins {
		found, err := n.origin(ctx, origin)
		if withPort(origin) == withPort(n.Connect) || err == nil && slices.Contains(found, n.Connect) {
			names = append(names, origin)
		}
	}
	return NamesOf(names...)
}

// Reach returns a Client for the issuer at an endpoint. Where an origin has no certificate for the issuer's host, it is asked under its
// other names in TLS: it has one for the name that its CDN asks for. The HTTP requests stay those of the issuer's host.
func (n Network) Reach(u keystore.IssuerURL, at Endpoint) *Client {
	c := n.At(u, at.Address)
	t := c.transport()
	if at.Shielded {
		c.shield, c.origin = n.Shield, net.JoinHostPort(u.Host(), Port(u))
		t.TLSClientConfig.Certificates = n.Shield.Certificates
	}
	if len(at.Names) == 0 {
		return c
	}
	t.DialTLSContext = func(ctx context.Context, _, asked string) (net.Conn, error) {
		names := []string{u.Host()}
		if host, _, _ := net.SplitHostPort(asked); host == u.Host() {
			names = append(names, at.Names...)
		} else {
			names[0] = host
		}
		var failed error
		for _, name := range names {
			conn, err := dialTLS(ctx, t, asked, name)
			if err == nil {
				return conn, nil
			}
			err = fmt.Errorf("asked as %s: %w", name, err)
			if failed != nil {
				err = fmt.Errorf("%w; %w", failed, err)
			}
			if failed = err; IsTimeout(err) {
				break
			}
		}
		return nil, failed
	}
	return c
}

// dialTLS returns a TLS connection under a name.
func dialTLS(ctx context.Context, t *http.Transport, address, name string) (*tls.Conn, error) {
	raw, err := t.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conf := t.TLSClientConfig.Clone()
	conf.ServerName = name
	conn := tls.Client(raw, conf)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// At returns a Client that reaches the issuer's host at one of its Addresses, whatever DNS says by then.
func (n Network) At(u keystore.IssuerURL, address string) *Client {
	return newClient(n.RootCAs, cmp.Or(n.Patience, unhurried), func(ctx context.Context, network, asked string) (net.Conn, error) {
		host, named, err := net.SplitHostPort(asked)
		switch {
		case err != nil || n.Connect != "" || host == u.Host() && named == Port(u): // an origin may have a port of its own
			asked = address
		case host == u.Host(): // jwks_uri may name another port, or lead to another host
			ip, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			asked = net.JoinHostPort(ip, named)
		}
		return n.dial(ctx, network, asked)
	})
}

// Client returns a Client for any URL. Without Connect it uses the proxy of the environment where that names one for the
// URL (HTTPS_PROXY, NO_PROXY). TLS is spoken with the issuer itself, but what is seen is what the proxy is answered: it
// says little about the issuer's single addresses.
func (n Network) Client() *Client {
	if n.Connect != "" {
		return n.At(keystore.IssuerURL{}, n.Connect)
	}
	c := newClient(n.RootCAs, unhurried, n.dial)
	c.transport().Proxy = http.ProxyFromEnvironment
	return c
}

// Through returns a Client that asks a proxy for everything. TLS is spoken with the issuer itself.
func (n Network) Through(proxy *url.URL) *Client {
	c := newClient(n.RootCAs, cmp.Or(n.Patience, unhurried), n.dial)
	c.transport().Proxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
	return c
}

func (n Network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.Dial == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return n.Dial(ctx, network, address)
}
