package verify

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/keypost/keypost/issuer/verify/servername"
	"github.com/keypost/keypost/keystore"
)

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

// connected returns the names of the origin that Connect is: as the operator calls it, and those in the policy that lead there.
func (n Network) connected(ctx context.Context, origins []string) []string {
	names := slices.Clone(n.Shield.Origins)
	for _, origin := range origins {
		if withPort(origin) == withPort(n.Connect) {
			names = append(names, origin)
		} else if found, err := n.origin(ctx, origin); err == nil && slices.Contains(found, n.Connect) {
			names = append(names, origin)
		}
	}
	return NamesOf(names...)
}

// under has c ask the issuer's host under other names in TLS where it has no certificate for its own: an origin has one for the
// name that its CDN asks for, and a policy calls it by. The HTTP requests stay those of the issuer's host.
func (n Network) under(c *Client, u keystore.IssuerURL, others ...string) {
	t := c.http.Transport.(*http.Transport)
	t.DialTLSContext = func(ctx context.Context, network, asked string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(asked)
		if err != nil {
			return nil, err
		}
		names := []string{host}
		if host == u.Host() {
			names = append(names, others...)
		}
		conn, _, err := servername.Dial(ctx, t.TLSClientConfig, names, func() (net.Conn, error) { return t.DialContext(ctx, network, asked) })
		if err != nil {
			return nil, err // and no conn, which is none even as an interface
		}
		return conn, nil
	}
}
