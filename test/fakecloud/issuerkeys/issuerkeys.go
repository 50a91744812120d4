// Package issuerkeys fetches what an issuer publishes, over HTTPS and from nowhere but there, and keeps it for as long as the
// issuer lets it. A key ID that is not in the copy is not there: nothing is fetched again before the copy has lapsed.
package issuerkeys

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud"
)

const (
	// Limit is how long an issuer may take for one document. No cloud says how long it waits.
	Limit = 5 * time.Second
	// undirected is how long a document without Cache-Control is kept. No cloud says.
	undirected = 5 * time.Minute
)

// What went wrong with a document that could not be had; any other error is about what it says.
var (
	ErrUnreached = errors.New("the issuer cannot be reached")
	ErrStatus    = errors.New("the issuer answered with another status than 200")
)

// Cache has the copies. Its methods may be called side by side.
type Cache struct {
	// Least is how long a copy is kept at least, whatever the issuer lets. It is set before the first use, as is Check.
	Least time.Duration
	// Check, unless nil, refuses a discovery document.
	Check func([]byte) error

	now    func() time.Time
	client *http.Client

	mu   sync.Mutex
	held map[string]*held // by the URL of the discovery document and the issuer
}

// held is one issuer's copy. Exchanges with the same issuer wait for each other.
type held struct {
	mu    sync.Mutex
	keys  []jose.JSONWebKey
	until time.Time
}

// New makes a cache that reaches issuers through dial (nil: not at all), and trusts roots (nil: nobody) at the time that now
// gives.
func New(dial fakecloud.Dial, roots *x509.CertPool, now func() time.Time) *Cache {
	if roots == nil {
		roots = x509.NewCertPool()
	}
	t := Transport(dial)
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Time: now}
	return &Cache{now: now, held: map[string]*held{}, client: Client(t, Limit)}
}

// Transport opens a new connection for every document, through dial (nil: to nobody). How it trusts is not set.
func Transport(dial fakecloud.Dial) *http.Transport {
	if dial == nil {
		dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no way to reach an issuer")
		}
	}
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, Proxy: nil}
}

// Client follows no redirect, and waits for one document that long.
func Client(t http.RoundTripper, limit time.Duration) *http.Client {
	return &http.Client{Timeout: limit, Transport: t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Keys are what an issuer publishes. Where its discovery document is may be said; empty is the usual place.
func (k *Cache) Keys(ctx context.Context, issuer, where string) ([]jose.JSONWebKey, error) {
	if where == "" {
		where = strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	}
	k.mu.Lock()
	h := k.held[where+" "+issuer]
	if h == nil {
		h = &held{}
		k.held[where+" "+issuer] = h
	}
	k.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if k.now().Before(h.until) {
		return h.keys, nil
	}
	keys, age, err := k.fetch(ctx, where, issuer)
	if err != nil {
		return nil, err
	}
	h.keys, h.until = keys, k.now().Add(max(age, k.Least))
	return keys, nil
}

// fetch reads both documents of an issuer. Of the first, Google
// (https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes) and Entra ask for issuer and jwks_uri.
func (k *Cache) fetch(ctx context.Context, where, issuer string) ([]jose.JSONWebKey, time.Duration, error) {
	var d struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	b, _, err := Get(ctx, k.client, where)
	if err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, 0, err
	}
	if k.Check != nil {
		if err := k.Check(b); err != nil {
			return nil, 0, err
		}
	}
	u, err := url.Parse(d.JWKSURI)
	if err != nil || u.Scheme != "https" || d.Issuer != issuer {
		return nil, 0, fmt.Errorf("the discovery document at %s names the issuer %q and the keys %q", where, d.Issuer, d.JWKSURI)
	}
	b, age, err := Get(ctx, k.client, d.JWKSURI)
	if err != nil {
		return nil, 0, err
	}
	keys, err := Parse(b)
	return keys, age, err
}

// Parse reads a key set: RSA and EC keys; a key that is broken spoils the set.
func Parse(b []byte) ([]jose.JSONWebKey, error) {
	var raw struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, err
	}
	var keys []jose.JSONWebKey
	for _, r := range raw.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(r, &key); err != nil {
			return nil, err
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the key set holds no RSA and no EC key")
	}
	return keys, nil
}

// Get reads one document and says how long it may be kept.
func Get(ctx context.Context, client *http.Client, u string) ([]byte, time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, 0, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrUnreached, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end, or given up
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%w: %s: %s", ErrStatus, u, response.Status)
	}
	b, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return b, Freshness(response.Header), err
}

// Freshness is how long an answer may be kept, by its own directives.
func Freshness(h http.Header) time.Duration {
	age := undirected
	for d := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Cache-Control"), ",")), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(d), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if n, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil {
				age = time.Duration(n) * time.Second
			}
		}
	}
	if strings.EqualFold(h.Get("Pragma"), "no-cache") {
		return 0
	}
	return age
}
