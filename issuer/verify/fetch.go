package verify

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
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Bounds of a fetch.
const (
	maxBody = pubkey.MaxSize
	timeout = 10 * time.Second // a Client's; a visit gives up sooner
)

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Client fetches documents as a careful relying party does: over HTTPS only, from the named host itself (no proxy of
// the environment), on a new connection each time, with bounds on time and size, and without following a redirect.
type Client struct {
	http *http.Client
}

// NewClient makes a Client. Nil roots are the system's, a nil dial is the network's own.
func NewClient(roots *x509.CertPool, dial DialFunc) *Client {
	return newClient(roots, dial, timeout)
}

func newClient(roots *x509.CertPool, dial DialFunc, timeout time.Duration) *Client {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Client{
		http: &http.Client{
			Timeout:       timeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{
				DialContext:        dial,
				TLSClientConfig:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
				DisableKeepAlives:  true,
				DisableCompression: true,
			},
		},
	}
}

// response is what a server answered, whatever the status.
type response struct {
	URL    string // safe to print
	Status int
	Header http.Header
	Body   []byte        // of a GET, at most 1 MiB
	Took   time.Duration // from the start of the connection to the last byte
}

// get fetches an https URL. A status other than 200 is no error; an answer that is too large is.
func (c *Client) get(ctx context.Context, url string) (response, error) {
	return c.do(ctx, http.MethodGet, url)
}

// head asks for the headers only.
func (c *Client) head(ctx context.Context, url string) (response, error) {
	return c.do(ctx, http.MethodHead, url)
}

func (c *Client) do(ctx context.Context, method, url string) (response, error) {
	if !strings.HasPrefix(url, "https://") {
		return response{}, fmt.Errorf("fetch %s: it must begin with https://", printable(url))
	}
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return response{}, fmt.Errorf("fetch %s: it is no URL", printable(url))
	}
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return response{}, fmt.Errorf("fetch %s: %w", printable(url), c.cause(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return response{}, fmt.Errorf("fetch %s: %w", printable(url), c.cause(err))
	}
	if len(body) > maxBody {
		return response{}, fmt.Errorf("fetch %s: the answer is larger than %d bytes", printable(url), maxBody)
	}
	return response{URL: printable(url), Status: resp.StatusCode, Header: resp.Header, Body: body, Took: time.Since(start)}, nil
}

// cause leaves out the method and URL that net/http puts before every error.
func (c *Client) cause(err error) error {
	if isTimeout(err) {
		return &timeoutError{c.http.Timeout}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &printableError{err}
}

// timeoutError says how long an answer was waited for.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.after) }

// Timeout makes it a net.Error's.
func (e *timeoutError) Timeout() bool { return true }

func isTimeout(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}

// printableError keeps what a stranger's server has put into an error, such as half a header, out of the terminal.
type printableError struct{ err error }

func (e *printableError) Error() string { return printable(e.err.Error()) }
func (e *printableError) Unwrap() error { return e.err }

// check200 explains any other status.
func (a response) check200() error {
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
	discoveryPath = "/.well-known/openid-configuration"
	aliasPath     = "/openid/v1/jwks"
)

// Published is the key set that an issuer publishes.
type Published struct {
	Issuer string // what the discovery document calls itself; empty when a JWKS was read directly
	URL    string // of the JWKS
	Keys   []keystore.VerificationKey
}

// JWKS reads the keys at an https URL: of a JWKS, or of an issuer, whose discovery document is then followed. A
// discovery document that names another issuer is refused, and so is a JWKS without keys.
func (c *Client) JWKS(ctx context.Context, url string) (Published, error) {
	a, err := c.get(ctx, url)
	if err != nil {
		return Published{}, err
	}
	if a.Status == http.StatusOK && hasKeys(a.Body) {
		return published("", a)
	}
	d, err := c.discovery(ctx, url)
	if err != nil {
		return Published{}, fmt.Errorf("%s is no JWKS (status %d) and no issuer URL: %w", url, a.Status, err)
	}
	if d.Issuer != url {
		return Published{}, fmt.Errorf("the discovery document of %s names the issuer %q, so tokens of %s are not its own", url, printable(d.Issuer), url)
	}
	if a, err = c.get(ctx, d.JWKSURI); err == nil {
		err = a.check200()
	}
	if err != nil {
		return Published{}, fmt.Errorf("read the JWKS of %s: %w", url, err)
	}
	return published(d.Issuer, a)
}

func published(issuer string, a response) (Published, error) {
	if err := checkUnambiguous(a.Body, jwksMembers()); err != nil {
		return Published{}, fmt.Errorf("%s is no sound JWKS: %w", a.URL, err)
	}
	keys, err := pubkey.Parse(a.URL, a.Body)
	return Published{Issuer: issuer, URL: a.URL, Keys: keys}, err
}

func hasKeys(body []byte) bool {
	var set struct {
		Keys *json.RawMessage `json:"keys"`
	}
	return json.Unmarshal(body, &set) == nil && set.Keys != nil
}

func (c *Client) discovery(ctx context.Context, issuer string) (discovery, error) {
	a, err := c.get(ctx, issuer+discoveryPath)
	if err != nil {
		return discovery{}, err
	}
	if err := a.check200(); err != nil {
		return discovery{}, err
	}
	return parseDiscovery(a)
}

// printable keeps what a stranger's server answered short, and keeps it from moving the cursor of a terminal or turning
// the direction of its text.
func printable(s string) string { return text.OneLine(s, 400) }

// clean is printable without a limit.
func clean(s string) string { return text.OneLine(s, 0) }
