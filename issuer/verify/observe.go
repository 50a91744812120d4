package verify

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Target is an issuer to observe.
type Target struct {
	URL     keystore.IssuerURL
	Origins []string // host[:port] of servers that answer under the URL without an address of it: replicas behind a cache or balancer
	Private bool     // the issuer is meant for a private network
	Dev     bool     // a development issuer: private, and looked at for a second only

	Rounds int                             // how often every address is asked; 0 for as often as evidence needs
	Failed func(address string, err error) // called for each gap at an address, one call at a time; may be nil

	pause time.Duration // between two rounds; zero for betweenThem
}

// TargetOf returns how one of a key set's issuer URLs is observed, by the key set's policy.
func TargetOf(s keystore.KeySet, u keystore.IssuerURL) Target {
	p := s.Policy()
	return Target{URL: u, Origins: p.Origins, Private: p.Private, Dev: s.Dev()}
}

// A look has several rounds, some time apart: a balancer or a cache with several nodes shows another one over the next
// connection, and one that is a second behind gets the time.
const (
	rounds      = 8
	betweenThem = 1500 * time.Millisecond // eight rounds take more than ten seconds
	inDev       = 150 * time.Millisecond  // no balancer is before a development server, and a person waits
	// connections is how many a look has open. Hundreds of looks run side by side, and each connection to a server that says
	// nothing takes 100 KiB for as long as an answer may take.
	connections = 2
)

// Observe looks at an issuer as relying parties are served, at each of its addresses and origins, at both places of the
// JWKS, over new connections for at least ten seconds (a development issuer: one). It uses no proxy: what one shows is
// what it is served. It judges nothing but whether the look is complete. An error means that it was not made: ctx is done,
// or there is no address.
//
// An answer 200 counts, and only the keys that every answer has were seen: what is not a sound JWKS has none, and is a gap too. A server
// that says that it has no document (404, 410) counts as one with a JWKS without keys: anyone who asks it first is refused. Any other
// answer is only a gap.
func Observe(ctx context.Context, n fetch.Network, t Target) (observation.Look, error) {
	look, _, err := observe(ctx, n, t, nil)
	return look, err
}

// listener gets what an address answers to the request for the discovery document, or for a JWKS.
type listener func(address string, discovery bool, a fetch.Answer)

// observe is Observe, and hands every answer to tell if that is not nil, one call at a time. Failed are the addresses at which something
// is missing.
func observe(ctx context.Context, n fetch.Network, t Target, tell listener) (look observation.Look, failed []string, err error) {
	n.Patience = cmp.Or(n.Patience, patience)
	o := observer{n: n, t: t, tell: tell, late: map[string]bool{}, failed: map[string]bool{}}
	pause := cmp.Or(t.pause, betweenThem)
	if t.Dev {
		pause = min(pause, inDev)
	}
	o.look.Start = time.Now()
	endpoints, err := o.endpoints(ctx)
	if err != nil {
		return look, nil, err
	}
	last := cmp.Or(t.Rounds, rounds) - 1
	for round := range last + 1 {
		began := time.Now()
		each(endpoints, connections, func(_ int, at fetch.Endpoint) { o.ask(ctx, at) })
		if round == last && t.Rounds > 0 {
			break // nothing is asked after it
		}
		if err := sleep(ctx, time.Until(began.Add(pause))); round < last && err != nil {
			return look, nil, err
		}
	}
	if ctx.Err() != nil {
		return look, nil, context.Cause(ctx)
	}
	o.look.End = time.Now()
	slices.Sort(o.look.Gaps)
	return o.look, slices.Sorted(maps.Keys(o.failed)), nil
}

// sleep waits for d, or for the end of ctx, whose cause is the error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// observer makes one look.
type observer struct {
	n    fetch.Network
	t    Target
	tell listener // may be nil

	mu     sync.Mutex
	look   observation.Look
	late   map[string]bool // documents that let a request wait, by address and URL: they are not asked for again
	failed map[string]bool // addresses at which something is missing
}

// endpoints returns where to ask, and notes what is not asked or shows little.
func (o *observer) endpoints(ctx context.Context) ([]fetch.Endpoint, error) {
	lookup, cancel := context.WithTimeout(ctx, o.n.Patience)
	defer cancel()
	all, err := o.n.Endpoints(lookup, o.t.URL, o.t.Origins)
	if err != nil {
		return nil, err
	}
	if o.n.Connect != "" {
		o.gap("%s was asked in place of the addresses of %s", o.n.Connect, o.t.URL.Host())
	}
	if extra := len(all) - fetch.MaxAddresses; extra > 0 {
		o.gap("%d of %d addresses were not asked", extra, len(all))
		all = all[:fetch.MaxAddresses]
	}
	all = slices.DeleteFunc(all, func(e fetch.Endpoint) bool {
		if e.Err != nil {
			o.gap("the origin %s cannot be looked up: %s", e.Address, printable(e.Err.Error()))
		}
		return e.Err != nil
	})
	for _, e := range all {
		o.look.Addresses = append(o.look.Addresses, e.Address)
		if a, err := netip.ParseAddrPort(e.Address); !e.Origin && o.n.Connect == "" && err == nil && publicnet.Hidden(a.Addr()) && !o.t.Private && !o.t.Dev {
			o.gap("%s is not a public address: with split-horizon DNS the world is sent elsewhere", e.Address)
		}
		if e.Named {
			o.look.Origins = append(o.look.Origins, e.Address)
		}
	}
	return all, nil
}

func (o *observer) gap(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look.Gaps = append(o.look.Gaps, clean(fmt.Sprintf(format, args...)))
}

// ask asks one address once for each document, but for those that it let a request wait for. Each counts by itself: anyone
// who lets us wait for one may still serve the others to anyone who has more patience.
func (o *observer) ask(ctx context.Context, at fetch.Endpoint) {
	client, issuer := o.n.Reach(o.t.URL, at), o.t.URL.String()
	for _, path := range []string{fetch.DiscoveryPath, fetch.KeysPath, fetch.AliasPath} {
		document, discovery := at.Address+" "+path, path == fetch.DiscoveryPath
		if o.isLate(document) {
			continue
		}
		a, err := client.Get(ctx, issuer+path)
		if a.Status != 0 {
			o.heard(at.Address, discovery, a, err)
		}
		switch {
		case err == nil && discovery:
			err = o.checkDiscovery(a)
		case err == nil:
			err = o.takeKeys(a)
		}
		o.fail(at.Address, document, err)
	}
}

func (o *observer) checkDiscovery(a fetch.Answer) error {
	if err := a.Check200(); err != nil {
		return err
	}
	d, err := fetch.ParseDiscovery(a)
	if issuer := o.t.URL.String(); err == nil && (d.Issuer != issuer || d.JWKSURI != issuer+fetch.KeysPath) {
		return fmt.Errorf("the discovery document names the issuer %s and the JWKS %s", printable(d.Issuer), printable(d.JWKSURI))
	}
	return err
}

// takeKeys adds the keys of a JWKS to the look; an unsound one counts as one without keys.
func (o *observer) takeKeys(a fetch.Answer) error {
	err := a.Check200()
	if err != nil && !a.None() {
		return err
	}
	var keys []keystore.VerificationKey
	if err == nil {
		keys, err = fetch.SoundKeys(a)
	}
	o.answer(a, keys)
	return err
}

// heard notes what the header of whatever answer says.
func (o *observer) heard(address string, discovery bool, a fetch.Answer, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look.SharedCache = cmp.Or(o.look.SharedCache, caching.Shared(a.Header))
	if o.tell != nil && err == nil {
		o.tell(address, discovery, a)
	}
}

// fail notes what was wrong with a document at an address, if anything was.
func (o *observer) fail(address, document string, err error) {
	if err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if fetch.IsTimeout(err) {
		o.late[document] = true
	}
	o.failed[address] = true
	prefix := "at " + address + ": " // the same fault has other words in each round, such as the port of this end
	if !slices.ContainsFunc(o.look.Gaps, func(g string) bool { return strings.HasPrefix(g, prefix) }) {
		o.look.Gaps = append(o.look.Gaps, clean(prefix+err.Error()))
	}
	if o.t.Failed != nil {
		o.t.Failed(address, err)
	}
}

func (o *observer) isLate(document string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late[document]
}

// answer adds one JWKS to the look.
func (o *observer) answer(a fetch.Answer, keys []keystore.VerificationKey) {
	allowed := observation.LifetimesOf(a.Allows())
	o.mu.Lock()
	defer o.mu.Unlock()
	var have []observation.Key
	for _, k := range keys {
		have = append(have, observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()})
	}
	if o.look.Answers++; o.look.Answers == 1 {
		o.look.Keys = have
	}
	o.look.Keys = slices.DeleteFunc(o.look.Keys, func(k observation.Key) bool { return !slices.Contains(have, k) })
	o.look.Lifetimes = o.look.Longest(allowed)
	seen := caching.Shared(a.Header)
	if at, err := http.ParseTime(a.Header.Get("Date")); err == nil && seen == "" { // a cache hands out the Date of its origin
		ahead := time.Since(at) - a.Took/2
		if was := o.look.ClockAhead; was == nil || ahead.Abs() > time.Duration(*was).Abs() {
			rounded := observation.Offset(ahead.Round(time.Second))
			o.look.ClockAhead = &rounded
		}
	}
}
