package listen

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/crypto/acme"
	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/internal/text"
)

const (
	// lookEvery is how often the cache is looked at for what another replica has ordered.
	lookEvery = 5 * time.Second
	// firstRetry and lastRetry bound the wait after an order that failed. Let's Encrypt takes five failed validations of a
	// host in an hour: 2 + 4 + 8 + 16 + 32 minutes make no sixth order in the first one, and each later hour has one. An order costs one
	// validation at most. https://letsencrypt.org/docs/rate-limits
	firstRetry = 2 * time.Minute
	lastRetry  = time.Hour
	// longestWait bounds what a CA may ask for: a wrong header must not keep a certificate from being renewed. The longest window of
	// Let's Encrypt is a week, and a question a day costs nobody anything.
	longestWait = 24 * time.Hour
	// orderTime bounds one order, and caTimeout one request to the CA.
	orderTime = 5 * time.Minute
	caTimeout = 30 * time.Second
	// maxReason bounds what is shown of an error, in characters: much of it may be the CA's own text.
	maxReason = 1000
)

// due returns when the next order may be made: when a third of the certificate's life is left, at most 30 days; the zero time while
// there is none. The first expiry in the chain counts: an intermediate may expire before the leaf.
func (h *acmeHost) due() time.Time {
	var at time.Time
	if c := h.inUse.Load(); c != nil {
		at = c.NotAfter.Add(-min(c.NotAfter.Sub(c.TLS.Leaf.NotBefore)/3, 30*24*time.Hour))
	}
	if h.retry.After(at) {
		return h.retry
	}
	return at
}

// retryAfter returns how long to wait after so many failed orders in a row; asked is what the CA asked for, or 0.
func retryAfter(failures int, asked time.Duration) time.Duration {
	wait := lastRetry
	if failures <= 5 {
		wait = firstRetry << (failures - 1)
	}
	return max(wait, min(asked, longestWait))
}

// Watch orders each certificate that is missing or due, one after another, until ctx is done. Of replicas that share
// a cache one orders, for as long as it runs; the others take from the cache what it gets, within lookEvery.
func (a *ACME) Watch(ctx context.Context, log *zap.Logger) {
	defer func() { _ = a.lock.Close() }() // an error if it is nil
	for {
		a.look(ctx, log)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// look takes what is new in the cache, and orders what is due where this replica is the one to order.
func (a *ACME) look(ctx context.Context, log *zap.Logger) {
	another := errors.Is(a.lead(), unix.EWOULDBLOCK)
	for _, h := range a.hosts {
		switch {
		case a.take(h):
			h.succeeded(log)
		case !another && !time.Now().Before(h.due()):
			a.renew(ctx, h, log)
		}
	}
}

// succeeded begins the waits anew. A CA whose certificates are due as soon as they are issued is not asked faster and faster.
func (h *acmeHost) succeeded(log *zap.Logger) {
	c := h.inUse.Load()
	h.failed, h.retry = 0, time.Now().Add(min(lastRetry, max(time.Until(c.NotAfter)/3, lookEvery)))
	h.failing.Store(false)
	log.Info("TLS certificate taken into use", zap.String("certificate", h.name), zap.Time("not_after", c.NotAfter))
}

// renew orders the certificate of a host.
func (a *ACME) renew(ctx context.Context, h *acmeHost, log *zap.Logger) {
	log.Info("ordering a TLS certificate", zap.String("certificate", h.name))
	err := a.order(ctx, h)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		h.succeeded(log)
		return
	}
	var asked time.Duration
	if refused, ok := errors.AsType[*acme.Error](err); ok {
		asked, _ = acme.RateLimit(refused)
	}
	h.failed++
	wait := retryAfter(h.failed, asked)
	h.retry = time.Now().Add(wait)
	h.failing.Store(true)
	log.Warn("TLS certificate not ordered, the previous one stays in use if there is one", zap.String("certificate", h.name),
		zap.String("error", text.OneLine(fmt.Sprintf("order a certificate for %s: %v", h.name, err), maxReason)), zap.Duration("again_in", wait))
}

// order orders the certificate of a host, keeps it in the cache and takes it into use.
func (a *ACME) order(ctx context.Context, h *acmeHost) error {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	if err := cmp.Or(a.lead(), a.prove()); err != nil {
		return fmt.Errorf("the CA is not asked, since the certificate cache cannot be written: %w", err)
	}
	client, err := a.client(ctx)
	if err != nil {
		return err
	}
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(h.name))
	if err != nil {
		return err
	}
	for _, url := range order.AuthzURLs {
		if err := a.authorize(ctx, client, url, h); err != nil {
			return err
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return err
	}
	text, err := finalize(ctx, client, order, h.name)
	if err != nil {
		return err
	}
	fresh, err := parseChain(text, h.name)
	if err != nil {
		return fmt.Errorf("the CA's answer cannot be used: %w", err)
	}
	if err := a.put(h.name, text); err != nil {
		return fmt.Errorf("keep the certificate: %w", err)
	}
	h.inUse.Store(fresh)
	return nil
}

// prove writes more than a certificate to the cache. On a full disk none could be kept, and the next order would ask for another one.
func (a *ACME) prove() error {
	const name, spare = ".space", 64 << 10
	if err := a.put(name, make([]byte, spare)); err != nil {
		return err
	}
	if err := a.remove(name); !errors.Is(err, fs.ErrNotExist) { // another replica that starts has removed it
		return err
	}
	return nil
}

// client returns a client of the CA, where the account is registered. The account's key is kept before the CA is told of it.
func (a *ACME) client(ctx context.Context) (*acme.Client, error) {
	key, err := a.accountKey()
	if err != nil {
		return nil, err
	}
	c := &acme.Client{Key: key, DirectoryURL: a.directory, HTTPClient: a.ca, UserAgent: "keypostd", RetryBackoff: again}
	if _, err := c.Discover(ctx); err != nil {
		return nil, fmt.Errorf("read the ACME directory (listen.tls.acme.directory; caFile has the root of its server's certificate): %w", err)
	}
	account := a.account
	if _, err := c.Register(ctx, &account, acme.AcceptTOS); err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil, fmt.Errorf("register the account: %w", err)
	}
	return c, nil
}

// again is a client's RetryBackoff: a few tries, after an outage of seconds or with a nonce that is too old. A CA that limits is left alone.
func again(n int, _ *http.Request, resp *http.Response) time.Duration {
	if n > 5 || resp.StatusCode == http.StatusTooManyRequests {
		return 0
	}
	return time.Duration(n) * time.Second
}

// authorize has the CA validate a host, unless it has done so of late. An order tries one type of challenge, since the CA counts each
// validation that fails. Where http-01 has been set up it comes first, since that is mostly done where tls-alpn-01 cannot work, and
// then they take turns.
func (a *ACME) authorize(ctx context.Context, client *acme.Client, url string, h *acmeHost) error {
	kind := tlsALPN01
	if a.http01 && h.failed%2 == 0 {
		kind = http01
	}
	z, err := client.GetAuthorization(ctx, url)
	if err != nil || z.Status == acme.StatusValid {
		return err
	}
	i := slices.IndexFunc(z.Challenges, func(c *acme.Challenge) bool { return c.Type == kind })
	if i < 0 {
		return fmt.Errorf("the CA does not offer the challenge %s", kind)
	}
	remove, err := a.provide(client, z.Challenges[i], h.name)
	if err != nil {
		return fmt.Errorf("put the answer to the challenge into the cache: %w", err)
	}
	defer remove()
	if _, err = client.Accept(ctx, z.Challenges[i]); err == nil {
		_, err = client.WaitAuthorization(ctx, url)
	}
	if err != nil {
		return fmt.Errorf("challenge %s: %w", kind, err)
	}
	return nil
}

// finalize returns a new key for a host with the certificate and chain that the CA gives for it.
func finalize(ctx context.Context, client *acme.Client, order *acme.Order, host string) ([]byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}}
	csr, err := x509.CreateCertificateRequest(rand.Reader, request, key)
	if err != nil {
		return nil, err
	}
	chain, _, err := client.CreateCertFromOrder(ctx, order, csr, true)
	if err != nil {
		return nil, err
	}
	return encode(tls.Certificate{PrivateKey: key, Certificate: chain})
}
