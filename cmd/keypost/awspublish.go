package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// publication is the wish that one key be published under one issuer URL.
type publication struct {
	name   keystore.Name // of the key set, if one has to be made
	url    string
	source string // where the key comes from, for messages
	key    keystore.VerificationKey
	policy keystore.Policy
	dev    bool
}

// find looks for the key set with the issuer URL, whatever its name.
func (p publication) find(ctx context.Context, st keystore.Reader) (set keystore.KeySet, is bool, err error) {
	c, err := catalog.ReadAll(ctx, st)
	if err != nil {
		return set, false, err
	}
	if err, unread := c.Unread[p.name]; unread {
		return set, false, fmt.Errorf("publish under the name %q: %w", p.name, err)
	}
	if s, published := c.InUse(p.url); published {
		return s, true, nil
	}
	_, err = c.Claims(p.spec(), catalog.Permit{})
	return set, false, p.explained(err)
}

// explained says what to do about a URL or name that is not free. There is no --force for a key set that cannot be read:
// whoever knows better publishes the URL first.
func (p publication) explained(err error) error {
	unread, is := errors.AsType[*catalog.UnreadError](err)
	switch {
	case err == nil:
		return nil
	case is && unread.HasURL:
		return fmt.Errorf("publish %s: %w", p.url, err)
	case is:
		return withHint(fmt.Errorf("publish %s: %w", p.url, err), "mend that key set; or, if you know that it does not have the URL, publish it first and run this again: %s",
			command{"issuer", "add", string(p.name), "--url", p.url, "--public-key-file", "FILE", "--relying-party", "aws", "--force", "--why", "REASON"})
	}
	return withHint(fmt.Errorf("publish %s under the name %q: %w", p.url, p.name, err),
		"choose another --name or --issuer-url, or publish it yourself: %s",
		command{"issuer", "add", "NAME", "--url", p.url, "--public-key-file", "FILE", "--relying-party", "aws"})
}

// checkNew tells whether a key set can be made of it. The key may still have to be generated.
func (p publication) checkNew() error {
	if err := p.name.Check(); err != nil {
		return withHint(fmt.Errorf("the key set is published under --name: %w", err),
			"publish it yourself under another name, and run this again, which finds it by its URL: %s",
			command{"issuer", "add", "NAME", "--url", p.url, "--public-key-file", "FILE", "--relying-party", "aws"})
	}
	if p.key.ID() == "" {
		return nil
	}
	_, err := keystore.New(keystore.Change{At: time.Now()}, p.spec())
	return err
}

// checkKey refuses a key set that does not have the key: a cluster whose tokens nobody trusts is what would come out,
// and adding a key to a live issuer is a rotation, with gates of its own.
func (p publication) checkKey(s keystore.KeySet) error {
	k, is := s.Key(p.key.ID())
	switch {
	case p.key.ID() == "":
		return withHint(
			fmt.Errorf("%s is published already (key set %q), and tokens signed with a new key pair would not be trusted", p.url, s.Name()),
			"give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair")
	case !is || !k.Equal(p.key):
		return withHint(
			fmt.Errorf("key set %q (%s) does not have the key %s of %s, so that no token signed with it would be trusted",
				s.Name(), p.url, p.key.ID(), p.source),
			"give the key that the cluster signs with (--public-key-file), or make this one its next: %s",
			command{"key", "add", string(s.Name()), "--public-key-file", p.source})
	case k.State == keystore.Retired:
		return withHint(fmt.Errorf("key %s of %s is retired in key set %q: nothing may sign with it", p.key.ID(), p.source, s.Name()),
			"give the key that the cluster signs with: --public-key-file FILE")
	}
	return nil
}

func (p publication) spec() keystore.Spec {
	u, _ := keystore.ParseIssuerURL(p.url, p.dev) // checkIssuer did; New refuses the zero URL
	return keystore.Spec{Name: p.name, Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{p.key}, Policy: p.policy, Dev: p.dev}
}

// publish stores the key set unless it is there.
func (a *app) publish(ctx context.Context, p publication) (keystore.KeySet, bool, error) {
	st, err := a.createStore(ctx)
	if err != nil {
		return keystore.KeySet{}, false, err
	}
	set, is, err := p.find(ctx, st)
	switch {
	case err != nil:
		return set, false, err
	case is:
		return set, false, p.checkKey(set)
	}
	set, err = a.add(ctx, st, p.spec(), catalog.AddOptions{Change: a.change("", false)})
	return set, err == nil, err
}

// negativeCaching is how long keypostd lets its 404 be cached: AWS must not be sent there sooner.
const negativeCaching = 60 * time.Second

// settling is how long after its publication an issuer may still be unknown somewhere. In development there is one
// server, which watches its directory, and no copy that outlives max-age.
func settling(s keystore.KeySet) time.Duration {
	whole := keystore.Convergence + negativeCaching
	if !s.Dev() {
		return whole
	}
	return min(whole, s.Policy().Cache(keystore.DefaultCache()).MaxAge)
}

// settled is when every copy from before the publication has run out. seen is when the key was first seen at every
// address, and atOnce tells that it was at the first look: then it counts as served since it was published.
func settled(s keystore.KeySet, id keystore.KeyID, seen time.Time, atOnce bool) time.Time {
	if k, is := s.Key(id); is && atOnce && k.PublishedAt.Before(seen) {
		seen = k.PublishedAt
	}
	return seen.Add(settling(s))
}

// site is an issuer's public URL and how it is reached.
type site struct {
	url     string
	caFile  string // of roots; "" for the system's
	roots   *x509.CertPool
	connect string   // host:port instead of the URL's own addresses
	proxy   *url.URL // through which it is looked at: then its addresses are not known
	dev     bool
}

// look is the command that compares what is served with the store, reached as here.
func (t site) look(s keystore.KeySet) command {
	look := command{"verify", string(s.Name())}
	if t.dev {
		look = append(look, "--dev")
	}
	if t.caFile != "" {
		look = append(look, "--ca-file", t.caFile)
	}
	if t.connect != "" {
		look = append(look, "--connect", t.connect)
	}
	return look
}

// addresses are those that relying parties may be sent to.
func (t site) addresses(ctx context.Context) ([]string, error) {
	switch {
	case t.connect != "":
		return []string{t.connect}, nil
	case t.proxy != nil:
		return nil, nil
	}
	u, err := keystore.ParseIssuerURL(t.url, true)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Host())
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", u.Host(), err)
	}
	var list []string
	for _, ip := range ips {
		list = append(list, net.JoinHostPort(ip.Unmap().String(), portOfURL(t.url)))
	}
	return list, nil
}

// portOfURL is where an issuer listens; only a development one has a port of its own.
func portOfURL(issuer string) string {
	if u, err := url.Parse(issuer); err == nil && u.Port() != "" {
		return u.Port()
	}
	return "443"
}

// hidden returns the addresses that AWS cannot reach: inside a company its own DNS may answer otherwise than the world's.
func hidden(addresses []string) []string {
	var list []string
	for _, address := range addresses {
		if a, err := netip.ParseAddrPort(address); err == nil && verify.Hidden(a.Addr()) {
			list = append(list, a.Addr().String())
		}
	}
	return list
}

// serves is nil when each of the addresses answers with both documents, and with the key in the JWKS.
func (t site) serves(ctx context.Context, key keystore.VerificationKey) error {
	if t.proxy != nil {
		if err := t.has(ctx, verify.NewClient(t.roots, nil).ThroughProxy(), key); err != nil {
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
		err := t.servesAt(ctx, address, key)
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

func (t site) servesAt(ctx context.Context, address string, key keystore.VerificationKey) error {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return t.has(ctx, verify.NewClient(t.roots, dial), key)
}

func (t site) has(ctx context.Context, client *verify.Client, key keystore.VerificationKey) error {
	found, err := client.JWKS(ctx, t.url)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found.Keys, func(k keystore.VerificationKey) bool { return k.Equal(key) && k.ID() == key.ID() }) {
		return fmt.Errorf("%s does not have the key %s", found.URL, key.ID())
	}
	return nil
}

// patience is how many times as long as it takes to settle a publication is waited for: whatever serves the store may
// have to be told by a commit, a pipeline, or a colleague.
const patience = 6

// awaitServed returns when the key of s is served at every address of the site and no older answer is left anywhere.
func (t site) awaitServed(ctx context.Context, j *journal, s keystore.KeySet, key keystore.VerificationKey) error {
	defer j.clear()
	if t.proxy != nil {
		j.printf("%s is looked at through the proxy %s (HTTPS_PROXY), and not at each of its addresses", t.url, t.proxy.Redacted())
	}
	seen, atOnce, err := t.awaitSeen(ctx, j, s, key)
	if err != nil {
		return err
	}
	until := settled(s, key.ID(), seen, atOnce)
	for left := time.Until(until); left > 0; left = time.Until(until) {
		j.progress(time.Now(), "%s is served; waiting until %s (%v) for older answers to run out: convergence and negative caching",
			t.url, stamp(until), left.Round(time.Second))
		if err := pause(ctx, min(left, time.Second)); err != nil {
			return err
		}
	}
	j.printf("Issuer %s is served with key %s", t.url, key.ID())
	return nil
}

func (t site) awaitSeen(ctx context.Context, j *journal, s keystore.KeySet, key keystore.VerificationKey) (seen time.Time, atOnce bool, err error) {
	whole := settling(s)
	every, deadline := min(2*time.Second, whole/5), time.Now().Add(patience*whole)
	for look := 0; ; look++ {
		err := t.serves(ctx, key)
		now := time.Now()
		switch {
		case err == nil:
			return now, look == 0, nil
		case ctx.Err() != nil:
			return now, false, ctx.Err()
		case now.After(deadline):
			return now, false, withHint(fmt.Errorf("%s is stored but after %v not served: %w", t.url, (patience*whole).Round(time.Second), err),
				"%s says more; when it is served, run the same command again", t.look(s))
		}
		j.progress(now, "waiting until %s is served: %v", t.url, err)
		if err := pause(ctx, every); err != nil {
			return now, false, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

var errHostPort = errors.New("it is not HOST:PORT")

func checkConnect(connect string) error {
	if connect == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(connect); err != nil || strings.HasPrefix(connect, ":") {
		return usagef("--connect %q: %w", connect, errHostPort)
	}
	return nil
}
