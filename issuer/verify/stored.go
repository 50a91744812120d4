package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/policy"
)

// ErrNotStored means that a store has no key set with the issuer URL: there is nothing to compare with.
var ErrNotStored = errors.New("the store has no key set with this issuer URL")

// again is the repair where a store was given.
const again = "repair what fails besides, and look again; the key sets in use are listed by keypost issuer list"

// notCompared reports that there was nothing to compare.
func (o Options) notCompared(r *finding.Report) {
	if o.Stored == nil {
		r.Warn(finding.NotCompared, "no store was given, so nothing says whether the published keys are yours")
		return
	}
	r.FailWith(finding.NotCompared, again, "nothing could be compared with the store: no JWKS could be read at %s", o.URL)
}

// readStore returns nil, with a finding, when there is nothing to compare with.
func (v *visitor) readStore(ctx context.Context) *keystore.KeySet {
	if v.o.Stored == nil {
		v.o.notCompared(&v.Report)
		return nil
	}
	set, err := v.o.Stored(ctx)
	v.known = set
	switch {
	case errors.Is(err, ErrNotStored):
		v.Warn(finding.NotCompared, "nothing was compared: %v", err)
	case err != nil:
		v.FailWith(finding.NotCompared, again, "nothing was compared with the store: %v", err)
	case set.Withdrawn():
		v.FailWith(finding.NotCompared, again, "nothing was compared: key set %q was withdrawn at %s", set.Name(), stamp(set.WithdrawnAt()))
	case !slices.ContainsFunc(set.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == v.o.URL }):
		v.FailWith(finding.NotCompared, again, "nothing was compared: key set %q does not have the issuer URL %s", set.Name(), v.o.URL)
	default:
		return &set
	}
	return nil
}

// checkStored compares what one address publishes with what the store says should be.
func (v *visit) checkStored(documents []jwksDocument) {
	if v.stored == nil {
		return // it has been reported
	}
	if len(documents) == 0 {
		v.o.notCompared(&v.Report)
		return
	}
	before := len(v.Findings)
	for _, d := range documents {
		v.compare(d)
	}
	if len(v.Findings) == before {
		v.OK("stored-keys", "the published keys are those of key set %q, compared by their material", v.stored.Name())
	}
}

// compare compares a JWKS with the stored key set, key by key and by their material: a kid is a name that anybody can give to a key.
func (v *visit) compare(d jwksDocument) {
	if d.unread > 0 {
		v.Fail("keys-unread", "%s has keys (%d) that cannot be read, and so not compared with key set %q", d.url, d.unread, v.stored.Name())
	}
	for _, k := range d.keys {
		v.checkPublished(d.url, k)
	}
	for _, k := range v.stored.Keys() {
		if !slices.ContainsFunc(d.keys, func(p keystore.VerificationKey) bool { return p.Fingerprint() == k.Fingerprint() }) {
			v.checkMissing(d.url, k)
		}
	}
}

// checkPublished reports what is wrong with a published key, if anything.
func (v *visit) checkPublished(url string, p keystore.VerificationKey) {
	name, keys, gone := v.stored.Name(), v.stored.Keys(), v.stored.Gone()
	_, used := v.stored.Key(p.ID())
	used = used || slices.ContainsFunc(gone, func(g keystore.Gone) bool { return g.ID == p.ID() })
	if i := slices.IndexFunc(keys, func(k keystore.Key) bool { return p.Fingerprint() == k.Fingerprint() }); i >= 0 {
		if k := keys[i]; p.ID() != k.ID() || p.Alg() != k.Alg() {
			v.Fail("key-changed", "%s has the key %s (%s) of key set %q as %s (%s)", url, k.ID(), k.Alg(), name, p.ID(), p.Alg())
		}
		return
	}
	gone = slices.DeleteFunc(slices.Clone(gone), func(g keystore.Gone) bool { return g.Fingerprint != p.Fingerprint() })
	i := slices.IndexFunc(gone, func(g keystore.Gone) bool { return g.ID == p.ID() })
	switch {
	case i >= 0:
		v.checkGone(url, gone[i])
	case len(gone) > 0:
		g := gone[0]
		v.Fail("key-still-there", "%s has the key %s, which is gone from key set %q (%s at %s), under another kid, %s", url, g.ID, name, g.Why, stamp(g.At), p.ID())
	case used:
		v.Fail("key-rogue", "%s has another key under the kid %s than key set %q (its SHA-256 is %s)", url, p.ID(), name, p.Fingerprint())
	default:
		v.Fail("key-rogue", "%s has the key %s (%s, SHA-256 %s), which key set %q neither has nor had", url, p.ID(), p.Alg(), p.Fingerprint(), name)
	}
}

// showsNoCache reports whether a change of the store at a time must be public by now: every keypostd has had time to get
// it, and nothing shows a shared cache in between. The answer's headers would show one, or the policy declares it; an
// origin that is asked directly has none before it.
func (v *visit) showsNoCache(at time.Time) bool {
	shows := slices.ContainsFunc(v.look.replies(), func(a fetch.Answer) bool { return caching.Shared(a.Header) != "" })
	return v.o.Now.After(at.Add(policy.Convergence)) && !shows && (v.o.Connect != "" || v.stored.Policy().EdgeHold == nil)
}

// checkGone reports a key that has left. A removed one signs nothing any more: it may be a cache's for as long as caches may have it.
func (v *visit) checkGone(url string, g keystore.Gone) {
	v.lag("key-still-there", g.At, g.Why == keystore.Revoked,
		fmt.Sprintf("%s still has key %s, which is gone from key set %q (%s at %s)", url, g.ID, v.stored.Name(), g.Why, stamp(g.At)))
}

// checkMissing reports a stored key that is not published.
func (v *visit) checkMissing(url string, k keystore.Key) {
	v.lag("key-missing", k.PublishedAt, true,
		fmt.Sprintf("%s does not have the %s key %s of key set %q, published at %s", url, k.State, k.ID(), v.stored.Name(), stamp(k.PublishedAt)))
}

// lag reports what is served as before a change of the store: a cache that obeys may hand out a copy from before for some time. Where none
// shows itself, keypostd should have the change by now; that fails if it is urgent.
func (v *visit) lag(code string, changed time.Time, urgent bool, what string) {
	until := v.stored.Gates().CopiesUntil(changed, v.allowed())
	switch {
	case v.o.Now.After(until):
		v.Fail(code, "%s, although no cache may hold an older copy since %s", what, stamp(until))
	case urgent && v.showsNoCache(changed):
		v.Fail(code, "%s, and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds an older copy, until %s at most", what, stamp(until))
	default:
		v.Warn(code, "%s: a cache may still hold an older copy until %s, or keypostd has not got the change", what, stamp(until))
	}
}

// allowed returns for how long the answers of this look allow caches to hold copies: an edge may have added to what the policy
// declares. Nobody may silence a finding for longer than a policy could.
func (v *visit) allowed() keystore.Cache {
	var c keystore.Cache
	for _, a := range v.look.replies() {
		c = c.Longest(a.Allows())
	}
	return keystore.Cache{MaxAge: min(c.MaxAge, mostSilent), StaleWhileRevalidate: min(c.StaleWhileRevalidate, mostSilent), StaleIfError: min(c.StaleIfError, mostSilent)}
}

// mostSilent is the longest stale time that a policy may declare (keystore.Policy.Check); its maxAge may be a day at most, beyond
// which only an edge goes.
const mostSilent = 7 * 24 * time.Hour
