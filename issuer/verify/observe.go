package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/internal/publicnet"
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
// JWKS and at any other that its discovery document names on its host, over new connections for at least ten seconds (a development issuer: one). It uses no proxy: what one shows is
// what it is served. It judges nothing but whether the look is complete. An error means that it was not made: ctx is done,
// or there is no address.
//
// An answer 200 counts, and only the keys that every answer has were seen: what is no sound JWKS has those that every reader
// finds in it, and is a gap too. A place that says that it has none (404, 410) counts as a JWKS without keys: whoever asks it
// first is refused. Any other answer is a gap alone.
func (n Network) Observe(ctx context.Context, t Target) (observation.Look, error) {
	return n.observe(ctx, t, nil)
}

// listener gets what an address answers, or as much of it as arrived: to the request for the discovery document, or for a
// JWKS.
type listener func(address string, discovery bool, a response)

// observe is Observe, and hands every answer to heard if that is not nil, one call at a time.
func (n Network) observe(ctx context.Context, t Target, heard listener) (observation.Look, error) {
	n.patience = cmp.Or(n.patience, patience)
	o := observer{n: n, t: t, pause: cmp.Or(n.pause, betweenThem), tell: heard, late: map[place]bool{}, answered: map[string]bool{}, refused: map[string]error{}, names: map[string][]string{}}
	if t.Dev {
		o.pause = min(o.pause, inDev)
	}
	o.look.Start = time.Now()
	addresses, err := o.places(ctx)
	if err != nil {
		return observation.Look{}, err
	}
	var wait sync.WaitGroup
	turns := make(chan struct{}, connections)
	last := cmp.Or(t.Rounds, rounds) - 1
	for round := range last + 1 {
		began := time.Now()
		for _, address := range addresses {
			wait.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				o.ask(ctx, address, withGzip(round))
			})
		}
		wait.Wait()
		if round == last && t.Rounds > 0 {
			break // nothing is asked after it
		}
		if err := sleep(ctx, time.Until(began.Add(o.pause))); round < last && err != nil {
			return observation.Look{}, err
		}
	}
	if ctx.Err() != nil {
		return observation.Look{}, context.Cause(ctx)
	}
	o.look.End = time.Now()
	for address, err := range o.refused { // localhost has two addresses, and a development server listens at one
		if o.answered[address] || len(o.answered) == 0 {
			o.gapAt(address, err)
		}
	}
	slices.Sort(o.look.Gaps)
	return o.look, nil
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

// withGzip reports whether a round asks for gzip: every second two, so that two replicas that take turns give both to each.
func withGzip(round int) bool { return round&2 != 0 }

// place is where one document is served: at an address, under a URL.
type place struct{ address, url string }

// observer makes one look.
type observer struct {
	n     Network
	t     Target
	pause time.Duration
	tell  listener // may be nil

	mu   sync.Mutex
	look observation.Look
	late map[place]bool // those that let a request wait: they are not asked again

	names    map[string][]string // of origins, by address: what their policy calls them
	shielded []string            // addresses that the shield is shown to, none of them public
	answered map[string]bool     // addresses
	refused  map[string]error    // by address, in development: a connection was refused
}

// places returns the addresses to ask, and notes those that are not asked or show little.
func (o *observer) places(ctx context.Context) ([]string, error) {
	lookup, cancel := context.WithTimeout(ctx, o.n.patience)
	defer cancel()
	all, err := o.n.Addresses(lookup, o.t.URL)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", o.t.URL.Host(), err)
	}
	if o.n.Connect != "" {
		o.gap("%s was asked in place of the addresses of %s", o.n.Connect, o.t.URL.Host())
		o.names[o.n.Connect] = o.n.connected(lookup, o.t.Origins)
	} else {
		for _, a := range all {
			o.checkPublic(a)
		}
	}
	for _, origin := range o.t.Origins {
		found, err := o.n.origin(lookup, origin)
		if err != nil {
			o.gap("the origin %s cannot be looked up: %s", origin, printable(err.Error()))
		}
		o.look.Origins = append(o.look.Origins, found...)
		for _, a := range found {
			if !slices.Contains(all, a) {
				all = append(all, a)
				o.names[a] = NamesOf(origin)
				if o.n.Shield.IsFor(origin) {
					o.shielded = append(o.shielded, a)
				}
			}
		}
	}
	if extra := len(all) - maxAddresses; extra > 0 {
		o.gap("%d of %d addresses were not asked", extra, len(all))
		all = all[:maxAddresses]
	}
	o.look.Addresses = all
	return all, nil
}

// checkPublic notes an address that says nothing about what the world is served.
func (o *observer) checkPublic(address string) {
	a, err := netip.ParseAddrPort(address)
	if err == nil && publicnet.Hidden(a.Addr()) && !o.t.Private && !o.t.Dev {
		o.gap("%s is not a public address: with split-horizon DNS the world is sent elsewhere", address)
	}
}

func (o *observer) gap(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look.Gaps = append(o.look.Gaps, clean(fmt.Sprintf(format, args...)))
}

// gapAt notes the first thing that is wrong at an address. The same fault has other words in each round, such as the
// port of this end of the connection. The caller holds mu.
func (o *observer) gapAt(address string, err error) {
	prefix := "at " + address + ": "
	if !slices.ContainsFunc(o.look.Gaps, func(g string) bool { return strings.HasPrefix(g, prefix) }) {
		o.look.Gaps = append(o.look.Gaps, clean(prefix+err.Error()))
	}
	if o.t.Failed != nil {
		o.t.Failed(address, err)
	}
}

// ask asks one address once for each document, but for those that it let a request wait for. Each counts by itself: who
// lets us wait for one may still serve the others to whoever has more patience.
func (o *observer) ask(ctx context.Context, address string, packed bool) {
	client, issuer := o.n.At(o.t.URL, address), o.t.URL.String()
	if slices.Contains(o.shielded, address) || o.n.Connect != "" {
		client = o.n.shown(o.t.URL, address)
	}
	client.under(o.t.URL, o.names[address]...)
	if packed {
		client = client.inGzip()
	}
	urls := []string{issuer + discoveryPath, issuer + keysPath, issuer + aliasPath}
	for i := 0; i < len(urls); i++ { // the discovery document may add one
		at, discovery := place{address, urls[i]}, i == 0
		if o.isLate(at) {
			continue
		}
		a, err := client.part(ctx, at.url)
		if a.Status != 0 {
			o.heard(address, discovery, a)
		}
		switch {
		case err == nil && discovery:
			err = o.checkDiscovery(a)
			if other := o.otherJWKS(a); other != "" {
				urls = append(urls, other)
			}
		case err == nil:
			err = o.takeKeys(address, a)
		case a.Large && !discovery && a.Status == http.StatusOK: // whole, and nobody finds a key in it
			o.answer(address, a, nil)
		}
		o.fail(at, err)
	}
}

// otherJWKS returns the jwks_uri of a discovery document if it is one on the issuer's host that is not asked anyway; else
// it is empty. What another host serves is not the issuer's.
func (o *observer) otherJWKS(a response) string {
	d, err := parseDiscovery(a)
	if issuer := o.t.URL.String(); err != nil || a.Status != http.StatusOK || d.JWKSURI == issuer+keysPath || d.JWKSURI == issuer+aliasPath {
		return ""
	}
	named, err := url.Parse(d.JWKSURI)
	own, _ := url.Parse(o.t.URL.String()) // it is an issuer's
	if err != nil || named.Scheme != "https" || !strings.EqualFold(named.Hostname(), own.Hostname()) {
		return ""
	}
	return d.JWKSURI
}

func (o *observer) checkDiscovery(a response) error {
	if err := a.check200(); err != nil {
		return err
	}
	d, err := parseDiscovery(a)
	if issuer := o.t.URL.String(); err == nil && (d.Issuer != issuer || d.JWKSURI != issuer+keysPath) {
		return fmt.Errorf("the discovery document names the issuer %s and the JWKS %s", printable(d.Issuer), printable(d.JWKSURI))
	}
	return err
}

// takeKeys adds the keys of a JWKS to the look: of an unsound one those that every reader finds in it.
func (o *observer) takeKeys(address string, a response) error {
	if a.none() {
		o.answer(address, a, nil)
	}
	if err := a.check200(); err != nil {
		return err
	}
	if a.Packed {
		o.answer(address, a, nil)
		return fmt.Errorf("%s cannot be unpacked: its Content-Encoding is %s", a.URL, printable(a.Header.Get("Content-Encoding")))
	}
	keys, err := soundKeys(a)
	if err != nil {
		keys = clearKeys(a)
	}
	o.answer(address, a, keys)
	return err
}

// none reports whether a place says that it has no document.
func (a response) none() bool { return a.Status == http.StatusNotFound || a.Status == http.StatusGone }

// heard notes that an address answered, and what the header of whatever answer says.
func (o *observer) heard(address string, discovery bool, a response) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered[address] = true
	o.look.SharedCache = cmp.Or(o.look.SharedCache, caching.Shared(a.Header))
	if o.tell != nil {
		o.tell(address, discovery, a)
	}
}

// fail notes what was wrong at a place, if anything was.
func (o *observer) fail(at place, err error) {
	if err == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if isTimeout(err) {
		o.late[at] = true
	}
	if o.t.Dev && errors.Is(err, syscall.ECONNREFUSED) {
		o.refused[at.address] = err
		return
	}
	o.gapAt(at.address, err)
}

func (o *observer) isLate(at place) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.late[at]
}

// soundKeys returns the keys of a JWKS, of which there may be none.
func soundKeys(a response) ([]keystore.VerificationKey, error) {
	set, err := parseJWKS(a)
	if err != nil || len(set) == 0 {
		return nil, err
	}
	if n := slices.IndexFunc(set, func(k jwk) bool { return k.text("kid") == "" }); n >= 0 { // relying parties look keys up by it
		return nil, fmt.Errorf("%s: key %d has no kid", a.URL, n+1)
	}
	p, err := published("", a)
	return p.Keys, err
}

// clearKeys returns the keys of an unsound JWKS about which no two readers disagree: each is sound, and alone has its kid.
func clearKeys(a response) []keystore.VerificationKey {
	set, err := parseJWKS(a)
	if err != nil {
		return nil
	}
	kids := map[string]int{}
	for _, k := range set {
		kids[k.text("kid")]++
	}
	var clear []keystore.VerificationKey
	for _, k := range set {
		if public, err := parseKey(a.URL, k); err == nil && k.text("kid") != "" && kids[k.text("kid")] == 1 {
			clear = append(clear, public)
		}
	}
	return clear
}

// allows returns for how long the answer's headers allow a copy of it to be handed out, by whatever cache.
func (a response) allows() keystore.Cache {
	whileRevalidate, ifError := caching.Stale(a.Header)
	return keystore.Cache{MaxAge: caching.Longest(a.Header, a.At), StaleWhileRevalidate: whileRevalidate, StaleIfError: ifError}
}

// answer adds one JWKS to the look.
func (o *observer) answer(address string, a response, keys []keystore.VerificationKey) {
	allowed := observation.LifetimesOf(a.allows())
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
	if allowed.LongestOfAll() > o.look.LongestOfAll() {
		o.look.LongestAt = a.URL + " at " + address
	}
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
