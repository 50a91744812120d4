package verify

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
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

	patience time.Duration // for one fetch; zero for unhurried
	pause    time.Duration // between two rounds of Observe; zero for betweenThem
}

// Shield is what an origin asks of its CDN (listen.shield of keypostd). Without it the origin answers 403, and what it
// serves stays unseen.
type Shield struct {
	Header, Value string            // empty for none
	Certificates  []tls.Certificate // of the client
	// Origins are host[:port] as policies name them. A policy alone is not enough: whoever may write one key set would have the
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
	return n.lookup(ctx, u.Host(), port(u))
}

// lookup returns the addresses of a host, as HOST:PORT, each once and in a stable order. None is an error.
func (n Network) lookup(ctx context.Context, host, port string) ([]string, error) {
	lookup := n.Lookup
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
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
	host, port, err := net.SplitHostPort(origin)
	if err != nil {
		host, port = origin, "443"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []string{net.JoinHostPort(ip.String(), port)}, nil
	}
	return n.lookup(ctx, host, port)
}

// port returns the port of an issuer URL; only development URLs name one.
func port(u keystore.IssuerURL) string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(u.String(), "https://"), "/")
	if _, port, err := net.SplitHostPort(authority); err == nil {
		return port
	}
	return "443"
}

// shown returns a Client that reaches the issuer's host at an address, and shows the shield there.
func (n Network) shown(u keystore.IssuerURL, address string) *Client {
	c := n.At(u, address)
	c.shield, c.origin = n.Shield, net.JoinHostPort(u.Host(), port(u))
	c.http.Transport.(*http.Transport).TLSClientConfig.Certificates = n.Shield.Certificates
	return c
}

// At returns a Client that reaches the issuer's host at one of its Addresses, whatever DNS says by then.
func (n Network) At(u keystore.IssuerURL, address string) *Client {
	return newClient(n.RootCAs, cmp.Or(n.patience, unhurried), func(ctx context.Context, network, asked string) (net.Conn, error) {
		host, named, err := net.SplitHostPort(asked)
		switch {
		case err != nil || n.Connect != "" || host == u.Host() && named == port(u): // an origin may have a port of its own
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
	c.http.Transport.(*http.Transport).Proxy = http.ProxyFromEnvironment
	return c
}

func (n Network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.Dial == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return n.Dial(ctx, network, address)
}
