//go:build e2e_full

package replicas

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	randv2 "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/process"
)

const audience = "sts.amazonaws.com"

func dialer(address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	}
}

// cluster signs tokens and knows which of its keys every replica serves.
type cluster struct {
	name, issuer string

	mu      sync.RWMutex     // held for reading during a verification
	served  []signer         // every replica has them
	revoked []keystore.KeyID // no replica has them any more
}

type signer struct {
	key *ecdsa.PrivateKey
	id  keystore.KeyID
	pub keystore.VerificationKey
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key := keys.NewEC()
	pub, err := keystore.NewPublic(key.Public())
	must(t, err)
	return signer{key, pub.ID(), pub}
}

// token signs with one of the keys that relying parties must accept.
func (c *cluster) token() (token string, by signer) {
	by = c.served[randv2.IntN(len(c.served))]
	return keys.JWS(by.key, jose.ES256, string(by.id), map[string]any{
		"iss": c.issuer, "aud": audience, "sub": "system:serviceaccount:ns:sa", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}), by
}

// parties ask for documents and verify tokens all the time.
type parties struct {
	t        *testing.T
	b        *balancer
	clusters []*cluster
	verified atomic.Int64
	requests atomic.Int64
	cut      atomic.Int64 // connections that ended with a killed replica; such a request is made again
	stopped  chan struct{}
	done     sync.WaitGroup
}

func startParties(t *testing.T, b *balancer, ca *authority.Authority, clusters []*cluster) *parties {
	p := &parties{t: t, b: b, clusters: clusters, stopped: make(chan struct{})}
	for i := range 4 {
		client := clientOf(ca, b.listener.Addr().String())
		tr := client.Transport.(*http.Transport)
		tr.DisableKeepAlives = i%2 == 0
		client.Transport = &counter{tr, &p.requests}
		verify := []func(context.Context, *http.Client, *cluster) error{verifyGoOIDC, verifyJose}[i/2]
		p.done.Go(func() { p.run(client, verify) })
	}
	t.Cleanup(p.stop)
	p.more(100)
	return p
}

type counter struct {
	*http.Transport
	n *atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.Transport.RoundTrip(r)
}

func (p *parties) run(client *http.Client, verify func(context.Context, *http.Client, *cluster) error) {
	for !p.over() {
		c := p.clusters[randv2.IntN(len(p.clusters))]
		c.mu.RLock()
		err := verify(p.t.Context(), client, c)
		for tries := 0; err != nil && isCut(err) && p.b.recentlyKilled() && tries < 5; tries++ {
			p.cut.Add(1)
			err = verify(p.t.Context(), client, c)
		}
		c.mu.RUnlock()
		if err != nil && !p.over() {
			p.t.Errorf("%s after %d verifications: %s: %v", time.Now().Format("15:04:05.000"), p.verified.Load(), c.issuer, err)
			return
		}
		p.verified.Add(1)
		time.Sleep(3 * time.Millisecond) // or they measure each other
	}
}

// isCut tells a connection that broke from an answer that was wrong.
func isCut(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"EOF", "connection reset", "broken pipe", "connection refused", "server closed", "client connection lost"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

func (p *parties) over() bool {
	select {
	case <-p.stopped:
		return true
	default:
		return p.t.Failed()
	}
}

// more waits for that many more verifications.
func (p *parties) more(n int64) {
	p.t.Helper()
	want := p.verified.Load() + n
	process.Await(p.t, "verifications", func() error {
		if p.t.Failed() {
			p.t.FailNow()
		}
		if got := p.verified.Load(); got < want {
			return fmt.Errorf("%d of %d", got, want)
		}
		return nil
	})
}

func (p *parties) stop() {
	select {
	case <-p.stopped:
	default:
		close(p.stopped)
	}
	p.done.Wait()
}

// verifyGoOIDC discovers the issuer and verifies a token, without any cache.
func verifyGoOIDC(ctx context.Context, client *http.Client, c *cluster) error {
	token, _ := c.token()
	ctx = oidc.ClientContext(ctx, client)
	provider, err := oidc.NewProvider(ctx, c.issuer)
	if err != nil {
		return fmt.Errorf("go-oidc: %w", err)
	}
	if _, err := provider.Verifier(&oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{"ES256"}}).Verify(ctx, token); err != nil {
		return fmt.Errorf("go-oidc: %w", err)
	}
	return nil
}

// verifyJose fetches the JWKS, verifies a token with it, and looks for keys that are gone.
func verifyJose(ctx context.Context, client *http.Client, c *cluster) error {
	token, by := c.token()
	body, _, err := fetch(ctx, client, c.issuer+"/keys.json")
	if err != nil {
		return err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(body, &set); err != nil {
		return err
	}
	for _, id := range c.revoked {
		if len(set.Key(string(id))) > 0 {
			return fmt.Errorf("revoked key %s is back", id)
		}
	}
	keys := set.Key(string(by.id))
	if len(keys) != 1 {
		return fmt.Errorf("%d keys %s in %s", len(keys), by.id, body)
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return err
	}
	_, err = signed.Verify(keys[0])
	return err
}

func fetch(ctx context.Context, client *http.Client, url string) (body []byte, etag string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return body, resp.Header.Get("Etag"), err
}

// answer is what a replica says to one request, to be compared with the others'.
type answer struct {
	sum  [sha256.Size]byte
	etag string
}

func ask(ctx context.Context, r *replica, url string) (answer, error) {
	body, etag, err := fetch(ctx, r.client, url)
	return answer{sha256.Sum256(body), etag}, err
}
