package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/policy"
)

// Site describes how an issuer's public URL is reached from this machine. The zero Site uses the system's network, and the
// proxy of the environment if it names one for the URL. With Connect no proxy is used.
type Site struct{ fetch.Network }

// site is an issuer's public URL and how it is reached.
type site struct {
	Site
	url   keystore.IssuerURL
	proxy *url.URL // nil for none; behind one the URL's addresses are unknown
}

func newSite(s Site, issuerURL string) (site, error) {
	u, err := keystore.ParseIssuerURL(issuerURL, true)
	t := site{Site: s, url: u}
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

// look looks at the issuer of s, once at each address.
func (t site) look(ctx context.Context, s keystore.KeySet) sight {
	if t.proxy != nil {
		return t.lookThroughProxy(ctx)
	}
	l := sight{failed: map[string]error{}}
	target := verify.TargetOf(s, t.url)
	target.Rounds, target.Failed = 1, func(address string, err error) { l.failed[address] = err }
	var err error
	if l.Look, err = verify.Observe(ctx, t.Network, target); err != nil {
		l.failed[t.url.Host()] = err
	}
	return l
}

// lookThroughProxy is a diagnosis: the proxy chooses which server answers, and may keep answers itself.
func (t site) lookThroughProxy(ctx context.Context) sight {
	l := sight{proxied: true, Look: observation.Look{Start: time.Now()}}
	found, err := t.Client().JWKS(ctx, t.url.String())
	l.End = time.Now()
	if err != nil {
		l.failed = map[string]error{t.proxy.Redacted(): err}
		return l
	}
	l.Answers = 1
	for _, k := range found.Keys {
		l.Keys = append(l.Keys, seenKey(k))
	}
	return l
}

// settling is how long after a publication nobody asks for it: keypostd, which watches its directory, takes a second or two to serve it
// on a busy machine, and who asks sooner puts an answer 404 into the caches that there are.
const (
	settling      = 5 * time.Second
	settlingInDev = 250 * time.Millisecond
)

// awaitServed returns when the keys of p are served at every address of the site and no older answer is left anywhere.
func (r *Run) awaitServed(ctx context.Context, t site, p *Publication) error {
	if t.proxy != nil {
		r.Line("%s is looked at through the proxy %s (HTTPS_PROXY), and not at each of its addresses", t.url, t.proxy.Redacted())
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	until, err := r.awaitSeen(ctx, t, p)
	if err != nil {
		return err
	}
	if left := time.Until(until); left > 0 {
		r.Line("%s is served; waiting %v for answers from before to run out", t.url, left.Round(time.Second))
	}
	for left := time.Until(until); left > 0; left = time.Until(until) {
		r.Wait("waiting until %s (%v) for answers of %s from before to run out", stamp(until), left.Round(time.Second), t.url)
		if err := pause(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
	for _, k := range p.Keys {
		r.Line("Issuer %s is served with key %s", t.url, k.ID())
	}
	return nil
}

// settle waits until the servers can have a publication.
func (p *Publication) settle(ctx context.Context) error {
	d, now := settling, time.Now()
	if p.Stored.Dev() {
		d = settlingInDev
	}
	var newest time.Time
	for _, key := range p.Keys {
		if k, ok := p.Stored.Key(key.ID()); ok && k.PublishedAt.After(newest) {
			newest = k.PublishedAt
		}
	}
	return pause(ctx, min(d, newest.Add(d).Sub(now)))
}

// awaitSeen looks until the keys are served wherever it asks. It returns until when an older answer may be left.
func (r *Run) awaitSeen(ctx context.Context, t site, p *Publication) (time.Time, error) {
	longest := patience(p.Stored)
	every, deadline := min(2*time.Second, propagation(p.Stored)/5), time.Now().Add(longest)
	for first := true; ; first = false {
		l := t.look(ctx, p.Stored)
		if ctx.Err() != nil {
			return time.Time{}, context.Cause(ctx)
		}
		if p.serves(l) {
			return p.propagated(l.End, first), nil
		}
		problem, now := p.problem(l), time.Now()
		if now.After(deadline) {
			return time.Time{}, &Error{Problem: NotServed, KeySet: p.Stored.Name(), Err: fmt.Errorf("%s is stored but after %v not served: %w", t.url, longest, problem)}
		}
		left := deadline.Sub(now).Round(time.Second)
		r.Wait("waiting until %s is served, for %v at most: %v", t.url, left, problem)
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

// sight is a look at the issuer, and what kept it from being complete.
type sight struct {
	observation.Look
	failed  map[string]error // the latest failure of each address that had one
	proxied bool             // it was made through a proxy
}

// serves reports whether a look found the keys wherever it asked. What it could not ask without a route says nothing.
func (p *Publication) serves(l sight) bool {
	for address, err := range l.failed {
		if !noRoute(address, err) {
			return false
		}
	}
	return p.missing(l) == ""
}

// noRoute reports whether an address failed since this machine has no IPv6. The others are asked all the same.
func noRoute(address string, err error) bool {
	a, parseErr := netip.ParseAddrPort(address)
	return parseErr == nil && a.Addr().Is6() && errors.Is(err, syscall.ENETUNREACH)
}

// missing returns a key that not every answer had; empty if there is none.
func (p *Publication) missing(l sight) keystore.KeyID {
	for _, k := range p.Keys {
		if !slices.Contains(l.Keys, seenKey(k)) {
			return k.ID()
		}
	}
	return ""
}

func seenKey(k keystore.VerificationKey) observation.Key {
	return observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()}
}

// problem returns why a look does not find the keys served.
func (p *Publication) problem(l sight) error {
	for _, address := range slices.Sorted(maps.Keys(l.failed)) {
		switch err := l.failed[address]; {
		case l.proxied:
			return fmt.Errorf("through the proxy %s: %w", address, err)
		case l.Addresses == nil: // the name could not be looked up
			return err
		case !noRoute(address, err):
			return fmt.Errorf("at %s: %w", address, err)
		}
	}
	if l.Answers == 0 {
		return errors.New("none of its addresses can be reached from this machine")
	}
	return fmt.Errorf("not every answer has the key %s", p.missing(l))
}

// inDev is the longest wait for a publication in development.
const inDev = time.Second

// propagation returns how long after its publication an issuer may still be unknown somewhere: until every server has it,
// and no cache has the answer that there is none. Nobody must be sent to the issuer before. In development there is one
// server, which watches its directory, and no cache.
func propagation(s keystore.KeySet) time.Duration {
	if s.Dev() {
		return min(inDev, s.Policy().Cache(keystore.DefaultCache()).MaxAge)
	}
	return policy.Convergence + issuer.NotFoundMaxAge
}

// patience returns how long a publication is waited for that is not served: whatever serves the store may need a commit, a pipeline, or
// a colleague.
func patience(s keystore.KeySet) time.Duration {
	if s.Dev() {
		return min(30*time.Second, 6*s.Policy().Cache(keystore.DefaultCache()).MaxAge)
	}
	return 6 * propagation(s)
}

// propagated returns when every answer from before the publication has run out of every cache. The keys were first seen at
// every address at the time seen. A look of the run that did not find them, made before, refutes whatever was known.
//
// That a key lies in the store for long is not a sign that it was served: a pipeline may have brought it to the servers a moment ago. Two
// things are: the cloud trusts the issuer already, so that relying parties have been sent there; but perhaps not since there is a next
// key. And the key set says since when a key was observed at every public address: it was promoted on that evidence.
func (p *Publication) propagated(seen time.Time, atFirstLook bool) time.Time {
	var until time.Time
	for _, key := range p.Keys {
		at := seen.Add(propagation(p.Stored))
		k, published := p.Stored.Key(key.ID())
		switch {
		case !published || !atFirstLook:
		case p.Settled && k.State != keystore.Next:
			at = seen
		case !k.ObservedAt.IsZero() && k.ObservedAt.Before(seen):
			at = k.ObservedAt.Add(propagation(p.Stored))
		}
		if at.After(until) {
			until = at
		}
	}
	return until
}
