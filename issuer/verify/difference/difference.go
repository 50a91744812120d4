// Package difference compares published keys with a stored key set, key by key and by their material: a kid is a name that anybody
// can give to a key. Key set, keys and time are values; nothing is read.
package difference

import (
	"slices"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// From is a stored key set, and what there is to know of the answers that are compared with it.
type From struct {
	Set     keystore.KeySet
	Now     time.Time
	Allowed keystore.Cache // for how long the answers allow caches to hold copies, beyond what the policy declares
	Cached  bool           // a shared cache shows itself in them
	Direct  bool           // an origin gave them that was asked directly
}

// Of returns how the sound keys of the JWKS at url differ from those of the key set; nothing where they do not.
func (f From) Of(url string, published []keystore.VerificationKey) []finding.Finding {
	c := comparison{From: f}
	for _, k := range published {
		c.published(url, k)
	}
	for _, k := range f.Set.Keys() {
		if !slices.ContainsFunc(published, func(p keystore.VerificationKey) bool { return p.Fingerprint() == k.Fingerprint() }) {
			c.missing(url, k)
		}
	}
	return c.Findings
}

// comparison collects what is found.
type comparison struct {
	finding.Report
	From
}

// published reports what is wrong with a published key, if anything.
func (c *comparison) published(url string, p keystore.VerificationKey) {
	name, keys := c.Set.Name(), c.Set.Keys()
	if i := slices.IndexFunc(keys, func(k keystore.Key) bool { return p.Fingerprint() == k.Fingerprint() }); i >= 0 {
		switch k := keys[i]; {
		case p.ID() != k.ID():
			c.Fail("key-changed", "%s has the key %s of key set %q under another kid, %s", url, k.ID(), name, p.ID())
		case p.Alg() != k.Alg():
			c.Fail("key-changed", "%s says that key %s is for %s; key set %q says %s", url, k.ID(), p.Alg(), name, k.Alg())
		}
		return
	}
	g, gone := c.goneWith(p)
	_, used := c.Set.Key(p.ID())
	usedOnce := slices.ContainsFunc(c.Set.Gone(), func(g keystore.Gone) bool { return g.ID == p.ID() })
	switch {
	case gone && g.ID == p.ID():
		c.stillPublished(url, g)
	case gone:
		c.Fail("key-still-there", "%s has the key %s, which is gone from key set %q (%s at %s), under another kid, %s", url, g.ID, name, g.Why, stamp(g.At), p.ID())
	case used || usedOnce:
		c.Fail("key-swapped", "%s has another key under the kid %s than key set %q (its SHA-256 is %s)", url, p.ID(), name, p.Fingerprint())
	default:
		c.Fail("key-rogue", "%s has the key %s (%s, SHA-256 %s), which key set %q neither has nor had", url, p.ID(), p.Alg(), p.Fingerprint(), name)
	}
}

// showsNoCache reports whether a change of the store at a time must be public by now: every keypostd has had time to get
// it, and nothing shows a shared cache in between. The answer's headers would show one, or the policy declares it; an
// origin that is asked directly has none before it.
func (c *comparison) showsNoCache(at time.Time) bool {
	if !c.Now.After(at.Add(keystore.Convergence)) || c.Cached {
		return false
	}
	return c.Direct || c.Set.Policy().EdgeHold == nil
}

// stillPublished reports a key that has left: a cache that obeys may hand out a document with it for some time.
func (c *comparison) stillPublished(url string, g keystore.Gone) {
	until := c.Set.CopiesUntil(g.At, c.Allowed)
	switch {
	case c.Now.After(until):
		c.Fail("key-still-there",
			"%s still has key %s, which is gone from key set %q (%s at %s), although no cache may hold it since %s",
			url, g.ID, c.Set.Name(), g.Why, stamp(g.At), stamp(until))
	case c.showsNoCache(g.At):
		report := c.Warn
		if g.Why == keystore.Revoked {
			report = c.Fail
		}
		report("key-still-there", "%s still has key %s, which is gone (%s at %s), and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds it, until %s at most",
			url, g.ID, g.Why, stamp(g.At), stamp(until))
	default:
		c.Warn("key-cached", "%s still has key %s, which is gone (%s at %s): a cache may still hold it until %s, or keypostd has not got the change", url, g.ID, g.Why, stamp(g.At), stamp(until))
	}
}

// missing reports a stored key that is not published.
func (c *comparison) missing(url string, k keystore.Key) {
	until := c.Set.CopiesUntil(k.PublishedAt, c.Allowed)
	switch {
	case c.Now.After(until):
		c.Fail("key-missing",
			"%s lacks the %s key %s of key set %q, published at %s, although no cache may hold an older copy since %s",
			url, k.State, k.ID(), c.Set.Name(), stamp(k.PublishedAt), stamp(until))
	case c.showsNoCache(k.PublishedAt):
		c.Fail("key-missing", "%s lacks the %s key %s, published at %s, and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds an older copy, until %s at most",
			url, k.State, k.ID(), stamp(k.PublishedAt), stamp(until))
	default:
		c.Warn("key-not-yet", "%s lacks the %s key %s, published at %s: caches may still hold an older copy until %s, or keypostd has not got the change",
			url, k.State, k.ID(), stamp(k.PublishedAt), stamp(until))
	}
}

// goneWith returns the line that a key with p's material left, under p's key ID if it had that one.
func (c *comparison) goneWith(p keystore.VerificationKey) (keystore.Gone, bool) {
	lines := c.Set.Gone()
	same := func(g keystore.Gone) bool { return g.Fingerprint == p.Fingerprint() }
	i := slices.IndexFunc(lines, same)
	if i < 0 {
		return keystore.Gone{}, false
	}
	for _, g := range lines {
		if g.ID == p.ID() && same(g) {
			return g, true
		}
	}
	return lines[i], true
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
