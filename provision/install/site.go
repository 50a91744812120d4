package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Site describes how an issuer's public URL is reached from this machine. The zero Site uses the system's network, and the
// proxy of the environment if it names one for the URL. With Connect no proxy is used.
type Site struct {
	fetch.Network
	Own []netip.Addr // of this machine and no other; nil for those of its interfaces
}

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

// publicAddresses returns those that relying parties may be sent to, as HOST:PORT; none behind a proxy.
func (t site) publicAddresses(ctx context.Context) ([]string, error) {
	if t.proxy != nil {
		return nil, nil
	}
	all, err := t.Addresses(ctx, t.url)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.url.Host(), err)
	}
	return all, nil
}

// privateAddresses returns the addresses that no cloud can reach. Inside a company, DNS may answer otherwise than outside.
func privateAddresses(addresses []string) []string {
	var list []string
	for _, address := range addresses {
		if a, err := netip.ParseAddrPort(address); err == nil && publicnet.Hidden(a.Addr()) {
			list = append(list, a.Addr().String())
		}
	}
	return list
}

// look looks at the issuer of s, whole or once at each address.
func (t site) look(ctx context.Context, s keystore.KeySet, whole bool) sight {
	if t.proxy != nil {
		return t.lookThroughProxy(ctx)
	}
	l := sight{failed: map[string]error{}, whole: whole}
	target := verify.TargetOf(s, t.url)
	target.Failed = func(address string, err error) { l.failed[address] = err }
	if !whole {
		target.Rounds = 1
	}
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

// patience is how many times as long as the propagation a run waits for a publication: whatever serves the store may need
// a commit, a pipeline, or a colleague.
const patience = 6

// settling is how long after a publication nobody asks for it: keypostd, which watches its directory, takes a second or two to serve it
// on a busy machine, and who asks sooner puts an answer 404 into the caches that there are.
const (
	settling      = 5 * time.Second
	settlingInDev = 250 * time.Millisecond
)

// listed is how long a development server may take to read its directory.
const listed = keystore.MaxPoll + 2*time.Second

// awaitServed returns when the keys of p are served at every address of the site and no older answer is left anywhere.
func (r *Run) awaitServed(ctx context.Context, t site, p *Publication) error {
	s, keys := p.Stored, p.Keys
	if t.proxy != nil {
		r.Line("%s is looked at through the proxy %s (HTTPS_PROXY), and not at each of its addresses", t.url, t.proxy.Redacted())
	}
	e := evidence{set: s, keys: keys, inDir: r.Store.InDir, own: t.Own, trusted: p.Trusted, settled: p.Settled}
	if e.own == nil {
		e.own = ownAddresses()
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	v, err := r.awaitSeen(ctx, t, &e)
	if err != nil {
		return err
	}
	switch left := time.Until(v.until); {
	case v.why != "" && left > 0:
		r.Line("%s is served; waiting %v for answers from before to run out: %s", t.url, left.Round(time.Second), v.why)
	case v.evident:
		r.Line("%s is served by every server, and no cache was seen (%s): not waiting %v for answers from before to run out", t.url, e.asked(), propagation(s))
	}
	for left := time.Until(v.until); left > 0; left = time.Until(v.until) {
		r.Wait(time.Now(), "waiting until %s (%v) for answers of %s from before to run out", stamp(v.until), left.Round(time.Second), t.url)
		if err := pause(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
	for _, k := range keys {
		r.Line("Issuer %s is served with key %s", t.url, k.ID())
	}
	return nil
}

// settle waits until the servers can have a publication.
func (e evidence) settle(ctx context.Context) error {
	d, now := settling, time.Now()
	if e.set.Dev() {
		d = settlingInDev
	}
	var newest time.Time
	for _, key := range e.keys {
		if k, ok := e.set.Key(key.ID()); ok && k.PublishedAt.After(newest) {
			newest = k.PublishedAt
		}
	}
	return pause(ctx, min(d, newest.Add(d).Sub(now)))
}

// awaitSeen looks until the keys are served wherever it asks, and on for as long as more looks may end the wait.
func (r *Run) awaitSeen(ctx context.Context, t site, e *evidence) (verdict, error) {
	usual := propagation(e.set)
	every, deadline, told := min(2*time.Second, usual/5), time.Now().Add(patience*usual), false
	for whole := false; ; {
		done := r.During("still looking at %s", t.url)
		l := t.look(ctx, e.set, whole)
		done()
		if ctx.Err() != nil {
			return verdict{}, context.Cause(ctx)
		}
		e.looks = append(e.looks, l)
		v, now := e.judge(), time.Now()
		switch {
		case v.more:
			r.Wait(now, "%s is served; looking at it for some seconds", t.url)
			whole = !l.whole
			continue
		case v.served:
			return v, nil
		case e.otherServer(l):
			return verdict{}, &Error{Problem: OtherServer, KeySet: e.set.Name(), Err: fmt.Errorf("%s is stored, and what listens there is not the development server that reads this store: %w", t.url, e.problem(l))}
		case now.After(deadline):
			return verdict{}, &Error{Problem: NotServed, KeySet: e.set.Name(), Err: fmt.Errorf("%s is stored but after %v not served: %w", t.url,
				(patience * usual).Round(time.Second), e.problem(l))}
		}
		whole = false
		left := deadline.Sub(now).Round(time.Second)
		if err := e.problem(l); !told && untrustedCA(err) {
			told = true
			r.Report(Event{Kind: UntrustedCA, Text: fmt.Sprintf("the certificate of %s is of a CA that is not trusted here (%v); it is asked again for %v at most", t.url, err, left)})
		}
		r.Wait(now, "waiting until %s is served, for %v at most: %v", t.url, left, e.problem(l))
		if err := pause(ctx, every); err != nil {
			return verdict{}, err
		}
	}
}

// otherServer reports whether a development issuer is asked for at a server that will never have it: one with another certificate or
// without TLS, or one that has not listed the directory by now.
func (e evidence) otherServer(l sight) bool {
	if !e.set.Dev() || l.proxied {
		return false
	}
	problem := e.problem(l)
	_, plain := errors.AsType[tls.RecordHeaderError](problem)
	_, refused := errors.AsType[*tls.CertificateVerificationError](problem)
	since := l.End
	for _, before := range slices.Backward(e.looks) {
		if before.Addresses == nil || len(before.Keys) > 0 || before.Answers == 0 && !slices.ContainsFunc(failures(before), answered) {
			break
		}
		since = before.Start
	}
	return plain || errors.Is(problem, http.ErrSchemeMismatch) || refused || e.inDir && l.End.Sub(since) > listed
}

// untrustedCA reports whether a look failed for the CA of a certificate, which no time cures.
func untrustedCA(err error) bool {
	_, is := errors.AsType[x509.UnknownAuthorityError](err)
	return is
}

// problem returns why a look does not find the keys served.
func (e evidence) problem(l sight) error {
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
	return fmt.Errorf("not every answer has the key %s", e.lacking(l))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
