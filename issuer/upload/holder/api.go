package holder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
)

// Bounds of one call.
const (
	callTime   = 30 * time.Second
	answerSize = 1 << 20
)

// api is a server that takes a credential.
type api struct {
	client *http.Client
	base   string // https://HOST, without a slash at the end
	header http.Header
	secret string // never in an error
}

// newAPI returns the server at an address that the environment names. A header carries the credential. http is only for this machine.
func newAPI(base, header, credential string) (*api, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname())) {
		return nil, errors.New("the address is not https://HOST, or http:// of this machine") // it may have a password in it
	}
	secret := credential[strings.LastIndex(credential, " ")+1:] // without "Bearer"
	if secret == "" || strings.ContainsFunc(credential, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("the credential has characters that a header cannot have")
	}
	client := &http.Client{
		Timeout: callTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("redirects are not followed: they would get the credential")
		},
	}
	return &api{client, strings.TrimSuffix(base, "/"), http.Header{header: {credential}}, secret}, nil
}

func local(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// host returns HOST or HOST:PORT.
func (a *api) host() string {
	u, _ := url.Parse(a.base)
	if host, port, err := net.SplitHostPort(u.Host); err == nil && port == "443" && u.Scheme == "https" {
		return host
	}
	return u.Host
}

// request is one call. body is encoded as JSON unless it is nil.
type request struct {
	method, url string
	body        any
}

// statusError is an answer that is not a success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// hidden returns an error without the credential: a server may send it back anywhere.
func (a *api) hidden(err error) error {
	if err == nil {
		return nil
	}
	if shown := text.Hide(err.Error(), a.secret); shown != err.Error() {
		return errors.New(shown)
	}
	return err
}

// do returns the body of a successful answer, and when it was made by the server's clock; zero if it does not say.
func (a *api) do(ctx context.Context, q request) ([]byte, time.Time, error) {
	body, date, err := a.call(ctx, q)
	return body, date, a.hidden(err)
}

func (a *api) call(ctx context.Context, q request) ([]byte, time.Time, error) {
	var body io.Reader
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return nil, time.Time{}, err
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, body)
	if err != nil {
		return nil, time.Time{}, err
	}
	r.Header = a.header.Clone()
	r.Header.Set("Content-Type", "application/json")
	res, err := a.client.Do(r)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(res.Body, answerSize+1))
	switch {
	case err != nil:
		return nil, time.Time{}, fmt.Errorf("%s %s: %w", q.method, q.url, err)
	case len(got) > answerSize:
		return nil, time.Time{}, fmt.Errorf("%s %s: the answer is over %d bytes", q.method, q.url, answerSize)
	case res.StatusCode/100 != 2:
		said := text.OneLine(text.Hide(string(got), a.secret), 200)
		return nil, time.Time{}, &statusError{res.StatusCode, strings.TrimSuffix(fmt.Sprintf("%s %s: %s: %s", q.method, q.url, res.Status, said), ": ")}
	}
	date, _ := http.ParseTime(res.Header.Get("Date")) // zero without one
	return got, date, nil
}

// bearer returns the API at the address in a variable, or a default one, with the credential in another variable.
func bearer(to Target, address, fallback, credential string) (*api, error) {
	base, token := to.Getenv(address), to.Getenv(credential)
	if base == "" {
		base = fallback
	}
	if base != "" && !strings.Contains(base, "://") {
		base = "https://" + base
	}
	switch {
	case base == "":
		return nil, fmt.Errorf("set %s to the address of the server", address)
	case token == "":
		return nil, fmt.Errorf("set %s to a credential that may read and change it", credential)
	}
	a, err := newAPI(base, "Authorization", "Bearer "+token)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", address, credential, err)
	}
	return a, nil
}
