package fakeaws

import (
	"context"
	"crypto/sha1" //nolint:gosec // AWS's thumbprints are SHA-1
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakecloud/issuerkeys"
)

// keyLimit is how many RSA and how many EC keys a key set may hold
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html).
const keyLimit = 100

var errThumbprint = errors.New("the certificate matches no thumbprint")

// keyCache fetches issuers' keys and keeps them as long as the issuer lets it. A kid that is not in the copy is not
// there: nothing is fetched again before the copy has lapsed.
type keyCache struct {
	options Options
	limit   time.Duration // for one document

	mu   sync.Mutex
	held map[string]*held // by provider ARN
}

// held is one provider's copy. Calls for the same provider wait for each other.
type held struct {
	mu          sync.Mutex
	jwksURI     string
	keys        []jose.JSONWebKey
	uriUntil    time.Time
	keysUntil   time.Time
	thumbprints []string // those that the copy was fetched with
}

func newKeyCache(o Options) *keyCache {
	return &keyCache{options: o, limit: issuerkeys.Limit, held: map[string]*held{}}
}

// forget drops a provider's copy, as deleting the provider does.
func (k *keyCache) forget(arn string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, arn)
}

func (k *keyCache) of(p Provider) *held {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.held[p.ARN]
	if h == nil {
		h = &held{}
		k.held[p.ARN] = h
	}
	return h
}

// find gives the one key that a token's header means.
func (k *keyCache) find(ctx context.Context, p Provider, header jose.Header) (jose.JSONWebKey, error) {
	keys, err := k.of(p).get(ctx, k, p)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	var found []jose.JSONWebKey
	for _, key := range keys {
		if key.KeyID == header.KeyID {
			found = append(found, key)
		}
	}
	if header.KeyID == "" || len(found) != 1 || found[0].Algorithm != "" && found[0].Algorithm != header.Algorithm {
		return jose.JSONWebKey{}, fmt.Errorf("%d keys have the kid %q and the algorithm %s", len(found), header.KeyID, header.Algorithm)
	}
	return found[0], nil
}

func (h *held) get(ctx context.Context, k *keyCache, p Provider) ([]jose.JSONWebKey, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := k.options.Now()
	if now.Before(h.keysUntil) && slices.Equal(h.thumbprints, p.Thumbprints) {
		return h.keys, nil
	}
	client := k.client(p.Thumbprints, nil)
	if !now.Before(h.uriUntil) {
		uri, age, err := discover(ctx, client, p.URL)
		if err != nil {
			return nil, err
		}
		h.jwksURI, h.uriUntil = uri, now.Add(age)
	}
	keys, age, err := fetchKeys(ctx, client, h.jwksURI)
	if err != nil {
		return nil, err
	}
	h.keys, h.keysUntil, h.thumbprints = keys, now.Add(age), p.Thumbprints
	return keys, nil
}

// thumbprint is what IAM records when it is given none: that of the last certificate that the key set's host presents.
func (k *keyCache) thumbprint(ctx context.Context, issuer string) (string, error) {
	if k.options.Dial == nil {
		return strings.Repeat("fa4e", 10), nil
	}
	var last *x509.Certificate
	client := k.client(nil, func(cs tls.ConnectionState) error {
		last = cs.PeerCertificates[len(cs.PeerCertificates)-1]
		return nil
	})
	uri, _, err := discover(ctx, client, issuer)
	if err != nil {
		return "", err
	}
	// Of the key set's host IAM takes the certificate; nothing says that it reads the keys.
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, uri, nil)
	if err != nil {
		return "", err
	}
	last = nil
	if reply, err := client.Do(r); err == nil {
		err = reply.Body.Close()
		if err != nil {
			return "", err
		}
	} else if last == nil {
		return "", err
	}
	return thumbprintOf(last), nil
}

func thumbprintOf(c *x509.Certificate) string {
	sum := sha1.Sum(c.Raw) //nolint:gosec // AWS's thumbprints are SHA-1
	return hex.EncodeToString(sum[:])
}

// client opens a new connection for every document, follows no redirect and trusts what AWS would trust. accept, if
// given, decides about certificates instead.
func (k *keyCache) client(thumbprints []string, accept func(tls.ConnectionState) error) *http.Client {
	transport := issuerkeys.Transport(k.options.Dial)
	return issuerkeys.Client(fakecloud.RoundTripper(func(r *http.Request) (*http.Response, error) {
		t := transport.Clone()
		verify := accept
		if verify == nil {
			verify = func(cs tls.ConnectionState) error { return k.verify(cs, r.URL.Hostname(), thumbprints) }
		}
		t.TLSClientConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // VerifyConnection decides, with thumbprints
			VerifyConnection:   verify,
		}
		return t.RoundTrip(r)
	}), k.limit)
}

// verify trusts a chain that leads to a public root, or through a certificate whose thumbprint the provider has. A chain
// out of order, or with certificates that do not belong to it, is not one.
func (k *keyCache) verify(cs tls.ConnectionState, host string, thumbprints []string) error {
	chain := cs.PeerCertificates
	for i := 1; i < len(chain); i++ {
		if err := chain[i-1].CheckSignatureFrom(chain[i]); err != nil {
			return fmt.Errorf("the chain is out of order: %w", err)
		}
	}
	options := x509.VerifyOptions{DNSName: host, CurrentTime: k.options.Now(), Intermediates: x509.NewCertPool(), Roots: k.options.Roots}
	if options.Roots == nil {
		options.Roots = x509.NewCertPool()
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err == nil {
		return nil
	}
	for _, c := range chain {
		if !slices.ContainsFunc(thumbprints, func(t string) bool { return strings.EqualFold(t, thumbprintOf(c)) }) {
			continue
		}
		options.Roots = x509.NewCertPool()
		options.Roots.AddCert(c)
		if _, err := chain[0].Verify(options); err == nil {
			return nil
		}
	}
	return errThumbprint
}

// discover gives an issuer's jwks_uri and how long it may be kept. The members are those that AWS asks for
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html); claims_supported is on its list
// too, but documents without it work.
func discover(ctx context.Context, client *http.Client, issuer string) (string, time.Duration, error) {
	var d struct {
		Issuer     string   `json:"issuer"`
		JWKSURI    string   `json:"jwks_uri"`
		Responses  []string `json:"response_types_supported"`
		Subjects   []string `json:"subject_types_supported"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	age, err := get(ctx, client, issuer+"/.well-known/openid-configuration", &d)
	if err != nil {
		return "", 0, err
	}
	u, err := url.Parse(d.JWKSURI)
	switch {
	case err != nil:
		return "", 0, err
	case d.Issuer != issuer || u.Scheme != "https" || !slices.Contains(d.Responses, "id_token") ||
		!slices.Contains(d.Subjects, "public") || len(d.Algorithms) == 0:
		return "", 0, fmt.Errorf("the discovery document of %s does not have what AWS asks for", issuer)
	}
	return d.JWKSURI, age, nil
}

func fetchKeys(ctx context.Context, client *http.Client, uri string) ([]jose.JSONWebKey, time.Duration, error) {
	var raw struct{ Keys []json.RawMessage }
	age, err := get(ctx, client, uri, &raw)
	if err != nil {
		return nil, 0, err
	}
	keys, count := []jose.JSONWebKey{}, map[string]int{}
	for _, b := range raw.Keys {
		var kind struct{ Kty string }
		var key jose.JSONWebKey
		if json.Unmarshal(b, &kind) != nil || json.Unmarshal(b, &key) != nil {
			continue
		}
		count[kind.Kty]++
		keys = append(keys, key)
	}
	if len(keys) == 0 || count["RSA"] > keyLimit || count["EC"] > keyLimit {
		return nil, 0, fmt.Errorf("%s holds %d RSA and %d EC keys", uri, count["RSA"], count["EC"])
	}
	return keys, age, nil
}

// get reads one JSON document and says how long it may be kept.
func get(ctx context.Context, client *http.Client, u string, into any) (time.Duration, error) {
	b, age, err := issuerkeys.Get(ctx, client, u)
	if err != nil {
		return 0, err
	}
	return age, json.Unmarshal(b, into)
}
