// Package fetch reads documents over HTTPS as a careful relying party does, from each address of an issuer by itself. It judges nothing.
package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// MaxBody is the size of the largest answer that is read, in bytes.
const MaxBody = pubkey.MaxSize

// unhurried is how long a fetch may take that does not stand for a cloud's.
const unhurried = 10 * time.Second

// Client fetches documents as a careful relying party does: over HTTPS only, on a new connection each time, with bounds
// on time and size, and without following a redirect. [Network.At] and [Network.Client] make one.
type Client struct {
	http     *http.Client
	shield   Shield
	origin   string      // host:port of the URLs that the shield is shown to
	accepted atomic.Bool // something has accepted a connection
}

// newClient returns a client that sends what any program in Go sends: a server that could tell it from relying parties could
// answer it otherwise. So there is no User-Agent of keypost's own, and no Connection: close, which DisableKeepAlives would send.
func newClient(roots *x509.CertPool, patience time.Duration, dial DialFunc) *Client {
	c := &Client{}
	c.http = &http.Client{
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:         within(patience, dial, &c.accepted),
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: -1,
		},
	}
	return c
}

// LimitTLS has the client offer no version of TLS above this one; 0 for the newest.
func (c *Client) LimitTLS(version uint16) { c.transport().TLSClientConfig.MaxVersion = version }

// Accepted reports whether something has accepted a connection of the client.
func (c *Client) Accepted() bool { return c.accepted.Load() }

func (c *Client) transport() *http.Transport { return c.http.Transport.(*http.Transport) }

// within bounds the life of each connection, from its dial to its last byte. The timeout of a http.Client does not: a dial and
// a TLS handshake outlive their request, for ever if the server says nothing.
func within(patience time.Duration, dial DialFunc, accepted *atomic.Bool) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		end := time.Now().Add(patience)
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		accepted.Store(true)
		return conn, conn.SetDeadline(end)
	}
}

// Answer is what a server answered, whatever the status.
type Answer struct {
	URL    string // safe to print
	Status int
	Header http.Header
	Body   []byte        // of a GET, at most MaxBody
	Took   time.Duration // from the start of the connection to the last byte
	At     time.Time     // of the last byte
	TLS    tls.ConnectionState
}

// Get fetches an https URL. A status other than 200 is not an error; an answer that is too large, or that was cut off, is. With an error it
// returns what did arrive, without the body: a status other than zero if the header did.
func (c *Client) Get(ctx context.Context, url string) (Answer, error) {
	if !strings.HasPrefix(url, "https://") {
		return Answer{}, fmt.Errorf("fetch %s: it must begin with https://", printable(url))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Answer{}, fmt.Errorf("fetch %s: it is not a URL", printable(url))
	}
	if c.shield.Header != "" && withPort(req.URL.Host) == c.origin { // jwks_uri may lead to another host or port
		req.Header.Set(c.shield.Header, c.shield.Value)
	}
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("fetch %s: %w", printable(url), c.cause(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxBody+1))
	a := Answer{URL: printable(url), Status: resp.StatusCode, Header: resp.Header, Took: time.Since(start), At: time.Now()}
	if resp.TLS != nil {
		a.TLS = *resp.TLS
	}
	switch {
	case len(body) > MaxBody:
		return a, fmt.Errorf("fetch %s: the answer is larger than %d bytes", a.URL, MaxBody)
	case err != nil:
		return a, fmt.Errorf("fetch %s: %w", a.URL, c.cause(err))
	case c.http.Timeout > 0 && a.Took > c.http.Timeout: // what a server says to a connection that is being closed
		return a, fmt.Errorf("fetch %s: %w", a.URL, c.cause(context.DeadlineExceeded))
	}
	a.Body = body
	return a, nil
}

// fetchError is an error with a text that is safe to print: a stranger's server may have put half a header into err's.
type fetchError struct {
	text string
	err  error
}

func (e *fetchError) Error() string { return e.text }
func (e *fetchError) Unwrap() error { return e.err }

// cause leaves out the method and URL that net/http puts before every error, and adds what may be the reason.
func (c *Client) cause(err error) error {
	switch {
	case IsTimeout(err) && !c.accepted.Load():
		return &fetchError{fmt.Sprintf("no connection within %v", c.http.Timeout), err}
	case IsTimeout(err):
		return &fetchError{fmt.Sprintf("no answer within %v", c.http.Timeout), err}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	said := err.Error()
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown && c.transport().TLSClientConfig.RootCAs != nil {
		said += " (only the CAs in --ca-file count, in place of the system's)"
	}
	return &fetchError{printable(said), err}
}

// IsTimeout reports whether no answer came in time.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}

// Check200 explains any status other than 200.
func (a Answer) Check200() error {
	switch {
	case a.Status == http.StatusOK:
		return nil
	case a.Status >= 300 && a.Status < 400:
		return fmt.Errorf("%s redirects (%d) to %s", a.URL, a.Status, printable(a.Header.Get("Location")))
	}
	return fmt.Errorf("%s answers %d", a.URL, a.Status)
}

// Paths of the documents below an issuer URL.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/keys.json"
	AliasPath     = "/openid/v1/jwks"
)

// Published is the key set that an issuer publishes.
type Published struct {
	Issuer string // what the discovery document calls itself; empty when a JWKS was read directly
	URL    string // of the JWKS
	Keys   []keystore.VerificationKey
	Left   []pubkey.Left // keys of types that no key set can have, see [pubkey.ParseUsable]
}

// JWKS reads the keys at an https URL: of a JWKS, or of an issuer, whose discovery document is then followed. A
// discovery document that names another issuer is refused, and so is a JWKS without keys.
func (c *Client) JWKS(ctx context.Context, url string) (p Published, err error) {
	a, err := c.Get(ctx, url)
	if err != nil {
		return p, err
	}
	var set struct {
		Keys *json.RawMessage `json:"keys"`
	}
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &set) != nil || set.Keys == nil {
		d, err := c.discovery(ctx, url)
		if err != nil {
			return p, fmt.Errorf("%s is not a JWKS (status %d) and not an issuer URL: %w", url, a.Status, err)
		}
		if d.Issuer != url {
			return p, fmt.Errorf("the discovery document of %s names the issuer %q, so tokens of %s are not its own", url, printable(d.Issuer), url)
		}
		if a, err = c.getOK(ctx, d.JWKSURI); err != nil {
			return p, fmt.Errorf("read the JWKS of %s: %w", url, err)
		}
		p.Issuer = d.Issuer
	}
	if _, err := ParseJWKS(a); err != nil {
		return Published{}, err
	}
	p.URL = a.URL
	p.Keys, p.Left, err = pubkey.ParseUsable(a.URL, a.Body, nil)
	return p, err
}

func (c *Client) discovery(ctx context.Context, issuer string) (Discovery, error) {
	a, err := c.getOK(ctx, issuer+DiscoveryPath)
	if err != nil {
		return Discovery{}, err
	}
	return ParseDiscovery(a)
}

// getOK is Get where any status but 200 is an error.
func (c *Client) getOK(ctx context.Context, url string) (Answer, error) {
	a, err := c.Get(ctx, url)
	if err == nil {
		err = a.Check200()
	}
	return a, err
}

// printable makes text of a stranger's server short, and keeps it from moving the cursor of a terminal.
func printable(s string) string { return text.OneLine(s, 400) }
