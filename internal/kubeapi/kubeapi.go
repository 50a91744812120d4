// Package kubeapi asks one Kubernetes API server over plain HTTP requests. A typed client would decode objects into its
// own types and encode them again, and bring every API of Kubernetes into the program. It follows no redirect: the
// credentials would go along.
package kubeapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Client asks one API server. It is safe for concurrent use.
type Client struct {
	base   *url.URL // without a trailing slash
	client *http.Client
}

// New returns a client for the server and with the credentials of config. It asks nothing.
func New(config *rest.Config) (Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // each request has its own; a watch lasts longer
	config.UserAgent = "keypost"
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return Client{}, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return Client{}, err
	}
	own := *client // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base.Path, base.RawQuery = strings.TrimSuffix(base.Path, "/"), ""
	return Client{base: base, client: &own}, nil
}

// Close closes the connections that no request uses. The client can be used again.
func (c Client) Close() { utilnet.CloseIdleConnectionsFor(c.client.Transport) }

// URL returns the server's address, without a trailing slash.
func (c Client) URL() string { return c.base.String() }

// Place returns the server's host and path, for messages.
func (c Client) Place() string { return c.base.Host + c.base.Path }

// Request is one request.
type Request struct {
	Method string
	Path   string // with a leading slash, escaped
	Query  url.Values
	Accept string // empty: application/json
	Body   []byte // JSON; nil for none
}

// Limits bound one call.
type Limits struct {
	Time  time.Duration // until the answer is complete
	Bytes int64         // of the answer
}

// Call sends a request and returns the whole body of a success. Any other answer is a [*StatusError].
func (c Client) Call(ctx context.Context, r Request, most Limits) ([]byte, error) {
	inTime, cancel := context.WithTimeout(ctx, most.Time)
	defer cancel()
	body, err := c.exchange(inTime, r, most.Bytes)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer within %v", most.Time)
	}
	return body, err
}

// TooLargeError reports an answer of more bytes than were to be read.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the API server's answer is larger than %d bytes", e.Limit)
}

func (c Client) exchange(ctx context.Context, r Request, limit int64) ([]byte, error) {
	resp, err := c.Send(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the API server's answer ended early: %w", Cause(err))
	case int64(len(body)) > limit:
		return nil, &TooLargeError{limit}
	}
	return body, nil
}

// Send sends a request and returns the answer if it is a success; the caller closes its body. Any other answer is a
// [*StatusError].
func (c Client) Send(ctx context.Context, r Request) (*http.Response, error) {
	target := c.URL() + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, Cause(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, newStatusError(resp)
}

// Cause returns err without the method and URL that net/http puts before it: the caller says what was done where.
func Cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
