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
)

const (
	// fetchLimit is how long an issuer may take for one document. Google does not say.
	fetchLimit = 5 * time.Second
	// undirected is how long a document without Cache-Control is kept. Google does not say.
	undirected = 5 * time.Minute
)

// Cache has the copies. Its methods may be called side by side.
type Cache struct {
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

// New makes a cache that reaches issuers through dial, whose address is that of the URL (nil: not at all), and trusts roots
// (nil: nobody) at the time that now gives.
func New(dial func(ctx context.Context, network, address string) (net.Conn, error), roots *x509.CertPool, now func() time.Time) *Cache {
	if dial == nil {
		dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no way to reach an issuer")
		}
	}
	if roots == nil {
		roots = x509.NewCertPool()
	}
	return &Cache{now: now, held: map[string]*held{}, client: &http.Client{
		Timeout:       fetchLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, Proxy: nil,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, Time: now}},
	}}
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
	h.keys, h.until = keys, k.now().Add(age)
	return keys, nil
}

// fetch reads both documents of an issuer. Google asks for issuer and jwks_uri in the first
// (https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes).
func (k *Cache) fetch(ctx context.Context, where, issuer string) ([]jose.JSONWebKey, time.Duration, error) {
	var d struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	b, _, err := k.get(ctx, where)
	if err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, 0, err
	}
	u, err := url.Parse(d.JWKSURI)
	if err != nil || u.Scheme != "https" || d.Issuer != issuer {
		return nil, 0, fmt.Errorf("the discovery document at %s names the issuer %q and the keys %q", where, d.Issuer, d.JWKSURI)
	}
	b, age, err := k.get(ctx, d.JWKSURI)
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

// get reads one document and says how long it may be kept.
func (k *Cache) get(ctx context.Context, u string) ([]byte, time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, 0, err
	}
	response, err := k.client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end, or given up
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("%s: %s", u, response.Status)
	}
	b, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return b, freshness(response.Header), err
}

// freshness is how long an answer may be kept, by its own directives.
func freshness(h http.Header) time.Duration {
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
	return age
}
