package verify

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// ErrNotStored means that a store has no key set with the issuer URL: there is nothing to compare with.
var ErrNotStored = errors.New("the store has no key set with this issuer URL")

// What is said more than once about a key that should not be published, or should be and is not.
const (
	stillAccepted = "tokens signed with it are still accepted"
	refused       = "tokens signed with it are refused"
	findChange    = "find out what changed the document on its way"
	lookAgain     = "look again after that time"
	behind        = "see that keypostd serves the stored version (keypost issuer list --admin URL) and that its mirror is up to date; a shared cache that shows itself in no header is declared with keypost issuer set NAME --edge-hold"
)

// stranger is about a key that the store does not know.
func stranger() advice {
	return advice{
		"tokens signed with it are accepted wherever this issuer is trusted: somebody else answers for your issuer, or publishes a key of theirs",
		"first take what serves it out of reach (DNS record, CDN, host) and replace the TLS key; until that is done deny this issuer in the trust policies of the clouds." +
			" Make sure also that --store names the store that is published",
	}
}

// notCompared reports that there was nothing to compare.
func (r *report) notCompared(o Options) {
	if o.Stored == nil {
		r.noStore("no store was given, so nothing says whether the published keys are yours")
		return
	}
	r.fail("stored-keys", advice{repair: "repair what fails above, and look again"}, "nothing could be compared with the store: no JWKS could be read at %s", o.URL)
}

func (r *report) noStore(evidence string) {
	r.add(Warn, "stored-keys", advice{repair: "somebody who answers in your place would pass: compare with keypost verify NAME --store URL"}, evidence)
}

// readStore returns nil, with a finding, when there is nothing to compare with.
func (v *visitor) readStore(ctx context.Context) *keystore.KeySet {
	if v.o.Stored == nil {
		v.notCompared(v.o)
		return nil
	}
	set, err := v.o.Stored(ctx)
	a := advice{"the comparison could not be made", "repair the store, and look again"}
	switch {
	case errors.Is(err, ErrNotStored):
		v.noStore("nothing was compared: " + err.Error())
	case err != nil:
		v.fail("stored-keys", a, "nothing was compared with the store: %v", err)
	case set.Withdrawn():
		v.fail("stored-keys", a, "nothing was compared: key set %q was withdrawn at %s", set.Name(), stamp(set.WithdrawnAt()))
	case !slices.ContainsFunc(set.Issuers(), func(u keystore.IssuerURL) bool { return u.String() == v.o.URL }):
		v.fail("stored-keys", a, "nothing was compared: key set %q does not have the issuer URL %s", set.Name(), v.o.URL)
	default:
		return &set
	}
	return nil
}

// checkStored compares what one address publishes with what the store says should be, key by key and by their
// material: a kid is a name that anybody can give to a key.
func (v *visit) checkStored(documents []jwksDocument) {
	if v.stored == nil {
		return // readStore has reported it
	}
	if len(documents) == 0 {
		v.notCompared(v.o)
		return
	}
	before := len(v.findings)
	for _, d := range documents {
		v.compare(d)
	}
	if len(v.findings) == before {
		v.ok("stored-keys", "the published keys are those of key set %q, compared by their material", v.stored.Name())
	}
}

func (v *visit) compare(d jwksDocument) {
	if d.broken {
		v.fail("stored-keys", advice{repair: "repair it, and look again"}, "%s could not be read, so it was not compared with key set %q", d.url, v.stored.Name())
		return
	}
	if d.unread > 0 {
		v.fail("stored-keys", stranger(), "%s has keys (%d) that cannot be read, and so not compared with key set %q", d.url, d.unread, v.stored.Name())
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
			v.fail("stored-keys", advice{"a relying party picks the key by the kid that a token names, and the cluster's tokens name another", findChange},
				"%s has the key %s of key set %q under another kid, %s", url, k.ID(), name, p.ID())
		case p.Alg() != k.Alg():
			v.fail("stored-keys", advice{"relying parties refuse its tokens", findChange}, "%s says that key %s is for %s; key set %q says %s", url, k.ID(), p.Alg(), name, k.Alg())
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
		v.fail("stored-keys", stranger(), "%s has the key %s, which is gone from key set %q (%s at %s), under another kid, %s", url, g.ID, name, g.Why, stamp(g.At), p.ID())
	case used || usedOnce:
		v.fail("stored-keys", stranger(), "%s has another key under the kid %s than key set %q (its SHA-256 is %s)", url, p.ID(), name, p.Fingerprint())
	default:
		v.fail("stored-keys", stranger(), "%s has the key %s (%s, SHA-256 %s), which key set %q neither has nor had", url, p.ID(), p.Alg(), p.Fingerprint(), name)
	}
}

// showsNoCache reports whether a change of the store at a time must be public by now: every keypostd has had time to get
// it, and nothing shows a shared cache in between. The answer's headers would show one, or the policy declares it; an
// origin that is asked directly (--connect) has none before it.
func (v *visit) showsNoCache(at time.Time) bool {
	if !v.o.Now.After(at.Add(keystore.Convergence)) || slices.ContainsFunc(v.look.replies(), func(a response) bool { return sharedCache(a) != "" }) {
		return false
	}
	return v.o.Connect != "" || v.stored.Policy().EdgeHold == nil
}

// stillPublished reports a key that has left: a cache that obeys may hand out a document with it for some time.
func (v *visit) stillPublished(url string, g keystore.Gone) {
	until := v.stored.CopiesUntil(g.At, 0)
	switch {
	case v.o.Now.After(until):
		v.fail("stored-keys", advice{stillAccepted, "purge the CDN, look for a host that serves an older document, and see that keypostd and its mirror are up to date"},
			"%s still has key %s, which is gone from key set %q (%s at %s), although no cache may hold it since %s",
			url, g.ID, v.stored.Name(), g.Why, stamp(g.At), stamp(until))
	case v.showsNoCache(g.At):
		report := v.warn
		if g.Why == keystore.Revoked {
			report = v.fail
		}
		report("stored-keys", advice{stillAccepted, behind}, "%s still has key %s, which is gone (%s at %s), and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds it, until %s at most",
			url, g.ID, g.Why, stamp(g.At), stamp(until))
	default:
		v.warn("stored-keys", advice{repair: "purge the CDN to be sooner, see what keypostd serves (keypost issuer list --admin URL), and " + lookAgain},
			"%s still has key %s, which is gone (%s at %s): a cache may still hold it until %s, or keypostd has not got the change", url, g.ID, g.Why, stamp(g.At), stamp(until))
	}
}

// missing reports a stored key that is not published.
func (v *visit) missing(url string, k keystore.Key) {
	until := v.stored.CopiesUntil(k.PublishedAt, 0)
	switch {
	case v.o.Now.After(until):
		v.fail("stored-keys", advice{refused, "keypostd may reject the key set (see its log and keypost issuer list --admin), the mirror may be behind, or somebody else answers with an older document"},
			"%s lacks the %s key %s of key set %q, published at %s, although no cache may hold an older copy since %s",
			url, k.State, k.ID(), v.stored.Name(), stamp(k.PublishedAt), stamp(until))
	case v.showsNoCache(k.PublishedAt):
		v.fail("stored-keys", advice{refused, behind}, "%s lacks the %s key %s, published at %s, and no shared cache shows itself: keypostd has not got the change, or an unseen cache holds an older copy, until %s at most",
			url, k.State, k.ID(), stamp(k.PublishedAt), stamp(until))
	default:
		v.warn("stored-keys", advice{refused + " until then", lookAgain}, "%s lacks the %s key %s, published at %s: caches may still hold an older copy until %s, or keypostd has not got the change",
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
