package install

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// sight is a look at the issuer, and what kept it from being complete.
type sight struct {
	observation.Look
	failed  map[string]error // the latest failure of each address that had one
	whole   bool             // it had every round that evidence needs
	proxied bool             // it was made through a proxy
}

// evidence is what a run knows about a publication that must be known everywhere before a relying party is sent there.
type evidence struct {
	set   keystore.KeySet
	keys  []keystore.VerificationKey // that must be served
	inDir bool                       // the store is a directory
	own   []netip.Addr               // addresses of this machine and no other
	looks []sight                    // of this run, in their order

	trusted time.Time // since when what an earlier run made in the cloud trusts the issuer; zero if nothing does
	settled bool      // something does, and this run makes nothing
}

// verdict says how long a publication is waited for.
type verdict struct {
	served  bool      // the latest look found the keys wherever it asked; nothing else is set if not
	until   time.Time // relying parties may be sent to the issuer from then on
	evident bool      // by evidence, and not since answers from before have run out
	why     string    // why there is no evidence; empty if none is needed
	more    bool      // there may be some: whole looks are all that is missing
}

// judge returns how long the publication is waited for.
//
// Without evidence that is [propagation] from when the keys were first seen everywhere ([runsOut]): until every server has
// them, and no cache has the answer that there is none. With evidence it is the end of the latest look. That needs all of these, each of
// which alone could hide somebody who still answers otherwise:
//
//   - one look with all its rounds and another one after it, both complete, direct, and at the same addresses;
//   - no sign of a shared cache in any answer of the run, nor in the policy: a cache keeps an answer 404;
//   - clocks that agree: a cache that puts nothing else into a header hands out the Date of its origin;
//   - no answer of the run without the keys that a cache may still have: asking may have filled one that does not show itself;
//   - every replica was asked (see [evidence.unasked]);
//   - a policy that takes one vantage for enough.
func (e evidence) judge() verdict {
	first := len(e.looks)
	for first > 0 && e.serves(e.looks[first-1]) {
		first--
	}
	if first == len(e.looks) {
		return verdict{}
	}
	last := e.looks[len(e.looks)-1]
	v := verdict{served: true, until: e.propagated(e.looks[first].End, first == 0)}
	if !v.until.After(last.End) {
		return v // answers from before have run out
	}
	if v.why = e.doubt(); v.why != "" {
		return v
	}
	if before := len(e.looks) - 2; before < first || !e.looks[before].whole {
		v.why, v.more = "it was not looked at for long enough", true
		return v
	}
	if kept := e.kept(); kept.After(last.End) {
		v.until, v.why = earlier(v.until, kept), "it was answered without the key before, and a cache may have kept that"
		return v
	}
	v.until, v.evident = last.End, true
	return v
}

// serves reports whether a look found the keys wherever it asked. What it could not ask for want of a route says nothing.
func (e evidence) serves(l sight) bool {
	for address, err := range l.failed {
		if !noRoute(address, err) {
			return false
		}
	}
	return e.lacking(l) == ""
}

// noRoute reports whether an address failed since this machine has no IPv6. The others are asked all the same.
func noRoute(address string, err error) bool {
	a, parseErr := netip.ParseAddrPort(address)
	return parseErr == nil && a.Addr().Is6() && errors.Is(err, syscall.ENETUNREACH)
}

// lacking returns a key that not every answer had; empty if there is none.
func (e evidence) lacking(l sight) keystore.KeyID {
	for _, k := range e.keys {
		if !slices.Contains(l.Keys, seenKey(k)) {
			return k.ID()
		}
	}
	return ""
}

func seenKey(k keystore.VerificationKey) observation.Key {
	return observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()}
}

// clockTolerance is how far apart this machine's clock and a server's may be before the Date of an answer may be that of a
// copy: a Date has whole seconds, and looks are made over ten of them.
const clockTolerance = 2 * time.Second

// doubt returns what keeps the looks from being evidence, whatever looks may follow; empty if nothing does.
func (e evidence) doubt() string {
	policy, last := e.set.Policy(), e.looks[len(e.looks)-1]
	switch {
	case last.proxied:
		return "through a proxy it is not known which servers answered"
	case len(policy.ObserveFrom) > 0:
		return "its policy asks for looks from several places (observeFrom)"
	case policy.EdgeHold != nil:
		return "its policy says that a shared cache keeps copies (edgeHold)"
	}
	for _, l := range e.looks {
		switch {
		case !slices.Equal(l.Addresses, last.Addresses):
			return "its addresses changed meanwhile"
		case l.SharedCache != "":
			return "a shared cache answered (" + l.SharedCache + ")"
		case !e.serves(l):
			continue // see kept
		case !l.Complete():
			return l.Gaps[0]
		case l.ClockAhead == nil || time.Duration(*l.ClockAhead).Abs() > clockTolerance:
			return "the answers' Date is not the time of this machine's clock, so that a cache may have kept them"
		}
	}
	return e.unasked(last)
}

// kept returns until when a cache may have an answer of the run without the keys: for as long as a 404 of keypostd's, or longer if the
// answers of that look allow it. Zero if there was none.
func (e evidence) kept() time.Time {
	var until time.Time
	for _, l := range e.looks {
		missed := l.Answers > 0 && e.lacking(l) != "" || slices.ContainsFunc(failures(l), answered)
		if at := l.End.Add(max(issuer.NotFoundMaxAge, time.Duration(max(l.MaxAge, l.StaleWhileRevalidate, l.StaleIfError)))); missed && at.After(until) {
			until = at
		}
	}
	return until
}

func failures(l sight) []error {
	var all []error
	for _, err := range l.failed {
		all = append(all, err)
	}
	return all
}

// answered reports whether an address may have answered what a cache keeps: anything but a connection that was not made, or a server's
// own trouble.
func answered(err error) bool {
	if e, is := errors.AsType[*fetch.StatusError](err); is {
		return e.Status < http.StatusInternalServerError
	}
	e, is := errors.AsType[*net.OpError](err)
	return !is || e.Op != "dial"
}

// unasked returns why a replica may not have been asked; empty if all were.
//
// An address may be a balancer's, with any number of servers behind it, and a balancer may send one asker to the same server
// for ever. So that all were asked is known in two cases only. The policy names every origin: each was asked then, by an
// address of its own. Or every address is one of this machine, and the store is a directory: whoever answers runs beside that
// directory, and was asked. An address of this machine is no proof for a store that others read too: it may be a cluster's
// node, which passes connections on to servers elsewhere.
func (e evidence) unasked(l sight) string {
	if len(e.set.Policy().Origins) > 0 {
		return ""
	}
	if !e.inDir {
		return "any number of servers may read the store, and its policy does not name them (origins)"
	}
	for _, address := range l.Addresses {
		a, err := netip.ParseAddrPort(address)
		if err != nil || !slices.Contains(e.own, a.Addr().Unmap().WithZone("")) {
			return fmt.Sprintf("%s is not an address of this machine, so that any number of servers may be behind it, and its policy "+
				"does not name them (origins)", address)
		}
	}
	return ""
}

// ownAddresses returns those of this machine and no other. What an interface that is down or the loopback has beside
// loopback addresses is often an address that balanced servers share.
func ownAddresses() []netip.Addr {
	var all []netip.Addr
	interfaces, _ := net.Interfaces() // none: then nothing is known to be this machine's
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && (i.Flags&net.FlagLoopback == 0 || p.Addr().IsLoopback()) {
				all = append(all, p.Addr().Unmap().WithZone(""))
			}
		}
	}
	return all
}

// inDev is the longest wait for a publication in development.
const inDev = 5 * time.Second

// propagation returns how long after its publication an issuer may still be unknown somewhere: until every server has it,
// and no cache has the answer that there is none. Nobody must be sent to the issuer before. In development there is one
// server, which watches its directory, and no cache.
func propagation(s keystore.KeySet) time.Duration {
	whole := keystore.Convergence + issuer.NotFoundMaxAge
	if !s.Dev() {
		return whole
	}
	return min(inDev, s.Policy().Cache(keystore.DefaultCache()).MaxAge)
}

// propagated returns when every answer from before the publication has run out of every cache. The keys were first seen at
// every address at the time seen. A look of the run that did not find them, made before, refutes whatever was known.
func (e evidence) propagated(seen time.Time, atFirstLook bool) time.Time {
	var until time.Time
	for _, key := range e.keys {
		at := seen.Add(propagation(e.set))
		if k, published := e.set.Key(key.ID()); published && atFirstLook {
			if at = runsOut(k, seen, e.trusted, propagation(e.set)); e.settled && k.State != keystore.Next {
				at = seen // relying parties were sent there before; but perhaps not since there is a next key
			}
		}
		if at.After(until) {
			until = at
		}
	}
	return until
}

// runsOut returns when no answer from before k was published is left. The run saw k at every address, at the time seen and
// whenever it looked before. That k lies in the store for long is no sign that it was served: a pipeline may have brought it
// to the servers a moment ago. Two things are, both of them written down by who had seen it served:
//
//   - The cloud trusts the issuer, and began to when k was published already: a run makes what trusts it only once no older
//     answer is left, and relying parties have been sent there since. Trust from before k says nothing about k.
//   - The key set says since when k was observed at every public address: it was promoted on that evidence.
func runsOut(k keystore.Key, seen, trusted time.Time, propagation time.Duration) time.Time {
	switch {
	case !trusted.IsZero() && !trusted.Before(k.PublishedAt):
		return earlier(trusted, seen)
	case !k.ObservedAt.IsZero():
		return earlier(k.ObservedAt, seen).Add(propagation)
	}
	return seen.Add(propagation)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// asked says where the keys were seen.
func (e evidence) asked() string {
	answers := 0
	for _, l := range e.looks {
		if e.serves(l) {
			answers += l.Answers
		}
	}
	last := e.looks[len(e.looks)-1]
	return fmt.Sprintf("%s at %s", text.Count(answers, "answer", "answers"), text.Count(len(last.Addresses), "address", "addresses"))
}
