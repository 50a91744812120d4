package verify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"

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
func (c *Client) under(u keystore.IssuerURL, others ...string) {
	if len(others) == 0 {
		return
	}
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
		conn, err := dialTLS(ctx, t.TLSClientConfig, names, func() (net.Conn, error) { return t.DialContext(ctx, network, asked) })
		if err != nil {
			return nil, err // and no conn, which is none even as an interface
		}
		return conn, nil
	}
}

// dialTLS returns a TLS connection under the first of the names that the server has a certificate for, each over a connection of
// its own. The error has what was answered to each name.
func dialTLS(ctx context.Context, conf *tls.Config, names []string, dial func() (net.Conn, error)) (*tls.Conn, error) {
	var failed error
	for _, name := range names {
		raw, err := dial()
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		conf = conf.Clone()
		conf.ServerName = name
		conn := tls.Client(raw, conf)
		if err = conn.HandshakeContext(ctx); err == nil {
			return conn, nil
		}
		_ = raw.Close()
		switch {
		case failed != nil:
			failed = fmt.Errorf("%w; asked as %s: %w", failed, name, err)
		case len(names) > 1:
			failed = fmt.Errorf("asked as %s: %w", name, err)
		default:
			failed = err
		}
		if isTimeout(err) {
			break
		}
	}
	return nil, failed
}

// sayRoots returns the text of err, and with it what takes the place of the system's CAs if that may be the reason.
func sayRoots(err error, roots *x509.CertPool) string {
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown && roots != nil {
		return err.Error() + " (only the CAs in --ca-file count, in place of the system's)"
	}
	return err.Error()
}
