package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// ErrNotStored means that a store has no key set with the issuer URL: there is nothing to compare with.
var ErrNotStored = errors.New("the store has no key set with this issuer URL")

// notCompared reports that there was nothing to compare.
func notCompared(r *finding.Report, o Options) {
	if o.Stored == nil {
		r.Warn("store-none", "no store was given, so nothing says whether the published keys are yours")
		return
	}
	r.Fail("not-compared", "nothing could be compared with the store: no JWKS could be read at %s", o.URL)
}

// readStore returns nil, with a finding, when there is nothing to compare with.
func (v *visitor) readStore(ctx context.Context) *keystore.KeySet {
	if v.o.Stored == nil {
		notCompared(&v.Report, v.o)
		return nil
	}
	set, err := v.o.Stored(ctx)
	switch {
	case errors.Is(err, ErrNotStored):
		v.Warn("store-unknown", "nothing was compared: %v", err)
	case err != nil:
		v.Fail("store-unread", "nothing was compared with the store: %v", err)
	case set.Withdrawn():
		v.Fail("store-withdrawn", "nothing was compared: key set %q was withdrawn at %s", set.Name(), stamp(set.WithdrawnAt()))
	case !slices.ContainsFunc(set.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == v.o.URL }):
		v.Fail("store-other-url", "nothing was compared: key set %q does not have the issuer URL %s", set.Name(), v.o.URL)
	default:
		return &set
	}
	return nil
}

// checkStored compares what one address publishes with what the store says should be, key by key and by their
// material: a kid is a name that anybody can give to a key.
func (v *visit) checkStored(documents []jwksDocument) {
	if v.stored == nil || v.shut {
		return // it has been reported
	}
	if len(documents) == 0 {
		notCompared(&v.Report, v.o)
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

func (v *visit) compare(d jwksDocument) {
	if d.broken {
		v.Fail("not-compared", "%s could not be read, so it was not compared with key set %q", d.url, v.stored.Name())
		return
	}
	if d.unread > 0 {
		v.Fail("keys-unread", "%s has keys (%d) that cannot be read, and so not compared with key set %q", d.url, d.unread, v.stored.Name())
	}
	for _, k := range d.keys {
		v.comparePublished(d.url, k)
	}
	for _, k := range v.stored.Keys() {
		if !slices.ContainsFunc(d.keys, func(p keystore.VerificationKey) bool { return p.Fingerprint() == k.Fingerprint() }) {
			v.missing(d.url, k)
		}
	}
}

// comparePublished reports what is wrong with a published key, if anything.
func (v *visit) comparePublished(url string, p keystore.VerificationKey) {
	name, keys := v.stored.Name(), v.stored.Keys()
	if i := slices.IndexFunc(keys, func(k keystore.Key) bool { return p.Fingerprint() == k.Fingerprint() }); i >= 0 {
		switch k := keys[i]; {
		case p.ID() != k.ID():
			v.Fail("kid-changed", "%s has the key %s of key set %q under another kid, %s", url, k.ID(), name, p.ID())
		case p.Alg() != k.Alg():
			v.Fail("alg-changed", "%s says that key %s is for %s; key set %q says %s", url, k.ID(), p.Alg(), name, k.Alg())
		}
		return
	}
	g, gone := v.goneWith(p)
	_, used := v.stored.Key(p.ID())
	usedOnce := slices.ContainsFunc(v.stored.Gone(), func(g keystore.Gone) bool { return g.ID == p.ID() })
	switch {
	case gone && g.ID == p.ID():
		v.stillPublished(url, g)
	case gone:
		v.Fail("key-returned", "%s has the key %s, which is gone from key set %q (%s at %s), under another kid, %s", url, g.ID, name, g.Why, stamp(g.At), p.ID())
	case used || usedOnce:
		v.Fail("key-swapped", "%s has another key under the kid %s than key set %q (its SHA-256 is %s)", url, p.ID(), name, p.Fingerprint())
	default:
		v.Fail("key-rogue", "%s has the key %s (%s, SHA-256 %s), which key set %q neither has nor had", url, p.ID(), p.Alg(), p.Fingerprint(), name)
	}
}

// showsNoCache reports whether a change of the store at a time must be public by now: every keypostd has had time to get
// it, and nothing shows a shared cache in between. The answer's headers would show one, or the policy declares it; an
// origin that is asked directly (--connect) has none before it.
func (v *visit) showsNoCache(at time.Time) bool {
	if !v.o.Now.After(at.Add(keystore.Convergence)) || slices.ContainsFunc(v.look.replies(), func(a response) bool { return caching.Shared(a.Header) != "" }) {
		return false
	}
	return v.o.Connect != "" || v.stored.Policy().EdgeHold == nil
}

// allowed returns for how long the answers of this look allow caches to hold copies: an edge may have added to what the policy
// declares. Nobody may silence a finding for longer than a policy could.
func (v *visit) allowed() keystore.Cache {
	var c keystore.Cache
	for _, a := range v.look.replies() {
		c = c.Longest(a.allows())
	}
	return keystore.Cache{MaxAge: min(c.MaxAge, mostSilent), StaleWhileRevalidate: min(c.StaleWhileRevalidate, mostSilent), StaleIfError: min(c.StaleIfError, mostSilent)}
}

// mostSilent is the longest stale time that a policy may declare (keystore.Policy.Check); its maxAge may be a day at most, beyond
// which only an edge goes.
const mostSilent = 7 * 24 * time.Hour

// stillPublished reports a key that has left: a cache that obeys may hand out a document with it for some time.
func (v *visit) stillPublished(url string, g keystore.Gone) {
	until := v.stored.CopiesUntil(g.At, v.allowed())
	switch {
	case v.o.Now.After(until):
		v.Fail("key-still-there",
			"%s still has key %s, which is gone from key set %q (%s at %s), although no cache may hold it since %s",
			url, g.ID, v.stored.Name(), g.Why, stamp(g.At), stamp(until))
	case v.showsNoCache(g.At):
		report := v.Warn
		if g.Why == keystore.Revoked {
			report = v.Fail
		}
		report("key-not-withdrawn", "%s still has key %s, which is gone (%s at %s), and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds it, until %s at most",
			url, g.ID, g.Why, stamp(g.At), stamp(until))
	default:
		v.Warn("key-cached", "%s still has key %s, which is gone (%s at %s): a cache may still hold it until %s, or keypostd has not got the change", url, g.ID, g.Why, stamp(g.At), stamp(until))
	}
}

// missing reports a stored key that is not published.
func (v *visit) missing(url string, k keystore.Key) {
	until := v.stored.CopiesUntil(k.PublishedAt, v.allowed())
	switch {
	case v.o.Now.After(until):
		v.Fail("key-missing",
			"%s lacks the %s key %s of key set %q, published at %s, although no cache may hold an older copy since %s",
			url, k.State, k.ID(), v.stored.Name(), stamp(k.PublishedAt), stamp(until))
	case v.showsNoCache(k.PublishedAt):
		v.Fail("key-not-published", "%s lacks the %s key %s, published at %s, and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds an older copy, until %s at most",
			url, k.State, k.ID(), stamp(k.PublishedAt), stamp(until))
	default:
		v.Warn("key-not-yet", "%s lacks the %s key %s, published at %s: caches may still hold an older copy until %s, or keypostd has not got the change",
			url, k.State, k.ID(), stamp(k.PublishedAt), stamp(until))
	}
}

// goneWith returns the line that a key with p's material left, under p's key ID if it had that one.
func (v *visit) goneWith(p keystore.VerificationKey) (keystore.Gone, bool) {
	lines := v.stored.Gone()
	same := func(g keystore.Gone) bool {
		f, known := g.Material()
		return known && f == p.Fingerprint()
	}
	i := slices.IndexFunc(lines, same)
	if i < 0 {
		return keystore.Gone{}, false
	}
	for _, g := range lines {
		_, known := g.Material() // versions before the fingerprint left an imported key two lines
		if g.ID == p.ID() && (!known || same(g)) {
			return g, true
		}
	}
	return lines[i], true
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
