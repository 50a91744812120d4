package install

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
)

// Site describes how an issuer's public URL is reached from this machine. The zero Site uses the system's CAs, the URL's own
// addresses, and the proxy of the environment if it names one for the URL.
type Site struct {
	Roots   *x509.CertPool // nil for the system's
	Connect string         // HOST:PORT instead of the URL's own addresses; no proxy is used then
}

// site is an issuer's public URL and how it is reached.
type site struct {
	Site
	url   keystore.IssuerURL
	proxy *url.URL // nil for none; behind one the URL's addresses are unknown
	dev   bool
}

func newSite(s Site, issuerURL string, dev bool) (site, error) {
	u, err := keystore.ParseIssuerURL(issuerURL, true)
	t := site{Site: s, url: u, dev: dev}
	if err != nil || s.Connect != "" {
		return t, err
	}
	req, err := http.NewRequest(http.MethodGet, issuerURL, http.NoBody)
	if err != nil {
		return t, err
	}
	if t.proxy, err = http.ProxyFromEnvironment(req); err != nil {
		return t, errors.New("HTTPS_PROXY is not the URL of a proxy") // err may quote a password
	}
	return t, nil
}

// addresses returns those that relying parties may be sent to, as HOST:PORT; none behind a proxy.
func (t site) addresses(ctx context.Context) ([]string, error) {
	if t.proxy != nil {
		return nil, nil
	}
	all, err := t.network().Addresses(ctx, t.url)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.url.Host(), err)
	}
	return all, nil
}

func (t site) network() verify.Network {
	return verify.Network{RootCAs: t.Roots, Connect: t.Connect}
}

// privateAddresses returns the addresses that AWS cannot reach. Inside a company, DNS may answer otherwise than outside.
func privateAddresses(addresses []string) []string {
	var list []string
	for _, address := range addresses {
		if a, err := netip.ParseAddrPort(address); err == nil && verify.Hidden(a.Addr()) {
			list = append(list, a.Addr().String())
		}
	}
	return list
}

// serves returns nil when every address answers with both documents, and with the key in the JWKS.
func (t site) serves(ctx context.Context, key keystore.VerificationKey) error {
	if t.proxy != nil {
		if err := t.has(ctx, t.network().Client(), key); err != nil {
			return fmt.Errorf("through the proxy %s: %w", t.proxy.Redacted(), err)
		}
		return nil
	}
	addresses, err := t.addresses(ctx)
	if err != nil {
		return err
	}
	asked := 0
	for _, address := range addresses {
		err := t.has(ctx, t.network().At(t.url, address), key)
		if errors.Is(err, syscall.ENETUNREACH) && strings.HasPrefix(address, "[") && len(addresses) > 1 {
			continue // this machine has no IPv6
		}
		if t.dev && errors.Is(err, syscall.ECONNREFUSED) && len(addresses) > 1 {
			continue // localhost has two addresses, and a development server listens at one
		}
		if err != nil {
			return fmt.Errorf("at %s: %w", address, err)
		}
		asked++
	}
	if asked == 0 {
		return errors.New("none of its addresses can be reached from this machine")
	}
	return nil
}

// has returns nil if the client gets both documents of the issuer, and the key in the JWKS.
func (t site) has(ctx context.Context, client *verify.Client, key keystore.VerificationKey) error {
	found, err := client.JWKS(ctx, t.url.String())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found.Keys, func(k keystore.VerificationKey) bool { return k.Equal(key) && k.ID() == key.ID() }) {
		return fmt.Errorf("%s does not have the key %s", found.URL, key.ID())
	}
	return nil
}

// propagation returns how long after its publication an issuer may still be unknown somewhere: until every server has it,
// and no cache has the answer that there is none. AWS must not be sent to the issuer before. In development there is one
// server, which watches its directory, and no copy outlives max-age.
func propagation(s keystore.KeySet) time.Duration {
	whole := keystore.Convergence + issuer.NotFoundMaxAge
	if !s.Dev() {
		return whole
	}
	return min(whole, s.Policy().Cache(keystore.DefaultCache()).MaxAge)
}

// propagated returns when every answer from before the publication has run out of every cache. The key was first seen at
// every address at the time seen. If that was at the first look, the key counts as served since it was published.
func propagated(s keystore.KeySet, id keystore.KeyID, seen time.Time, atFirstLook bool) time.Time {
	if k, published := s.Key(id); published && atFirstLook && k.PublishedAt.Before(seen) {
		seen = k.PublishedAt
	}
	return seen.Add(propagation(s))
}

// patience is how many times as long as the propagation a run waits for a publication: whatever serves the store may need
// a commit, a pipeline, or a colleague.
const patience = 6

// awaitServed returns when the key of s is served at every address of the site and no older answer is left anywhere.
func (r *run) awaitServed(ctx context.Context, t site, s keystore.KeySet, key keystore.VerificationKey) error {
	if t.proxy != nil {
		r.line("%s is looked at through the proxy %s (HTTPS_PROXY), and not at each of its addresses", t.url, t.proxy.Redacted())
	}
	until, err := r.awaitSeen(ctx, t, s, key)
	if err != nil {
		return err
	}
	for left := time.Until(until); left > 0; left = time.Until(until) {
		r.wait(time.Now(), "%s is served; waiting until %s (%v) for older answers to run out: convergence and negative caching",
			t.url, stamp(until), left.Round(time.Second))
		if err := pause(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
	r.line("Issuer %s is served with key %s", t.url, key.ID())
	return nil
}

// awaitSeen looks until the key is served at every address. It returns when no older answer is left anywhere.
func (r *run) awaitSeen(ctx context.Context, t site, s keystore.KeySet, key keystore.VerificationKey) (time.Time, error) {
	whole := propagation(s)
	every, deadline := min(2*time.Second, whole/5), time.Now().Add(patience*whole)
	for look := 0; ; look++ {
		err := t.serves(ctx, key)
		now := time.Now()
		switch {
		case err == nil:
			return propagated(s, key.ID(), now, look == 0), nil
		case ctx.Err() != nil:
			return time.Time{}, ctx.Err()
		case now.After(deadline):
			return time.Time{}, &Error{Problem: NotServed, KeySet: s.Name(), Err: fmt.Errorf("%s is stored but after %v not served: %w", t.url,
				(patience * whole).Round(time.Second), err)}
		}
		r.wait(now, "waiting until %s is served: %v", t.url, err)
		if err := pause(ctx, every); err != nil {
			return time.Time{}, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
