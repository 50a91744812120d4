package install

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/policy"
)

// sight is a look at the issuer, and what kept it from being complete.
type sight struct {
	observation.Look
	failed  map[string]error // the latest failure of each address that had one
	proxied bool             // it was made through a proxy
}

// awaited is a publication that must be known everywhere before a relying party is sent there.
type awaited struct {
	set  keystore.KeySet
	keys []keystore.VerificationKey // that must be served

	trusted time.Time // since when what an earlier run made in the cloud trusts the issuer; zero if nothing does
	settled bool      // something does, and this run makes nothing
}

// serves reports whether a look found the keys wherever it asked. What it could not ask without a route says nothing.
func (a awaited) serves(l sight) bool {
	for address, err := range l.failed {
		if !noRoute(address, err) {
			return false
		}
	}
	return a.missing(l) == ""
}

// noRoute reports whether an address failed since this machine has no IPv6. The others are asked all the same.
func noRoute(address string, err error) bool {
	a, parseErr := netip.ParseAddrPort(address)
	return parseErr == nil && a.Addr().Is6() && errors.Is(err, syscall.ENETUNREACH)
}

// missing returns a key that not every answer had; empty if there is none.
func (a awaited) missing(l sight) keystore.KeyID {
	for _, k := range a.keys {
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
func (a awaited) problem(l sight) error {
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
	return fmt.Errorf("not every answer has the key %s", a.missing(l))
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
func (a awaited) propagated(seen time.Time, atFirstLook bool) time.Time {
	var until time.Time
	for _, key := range a.keys {
		at := seen.Add(propagation(a.set))
		if k, published := a.set.Key(key.ID()); published && atFirstLook {
			if at = runsOut(k, seen, a.trusted, propagation(a.set)); a.settled && k.State != keystore.Next {
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
// whenever it looked before. That k lies in the store for long is not a sign that it was served: a pipeline may have brought it
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
