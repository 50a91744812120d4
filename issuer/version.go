package issuer

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// Reason says why the stored version of a key set is not served, as a metric label.
type Reason string

// The reasons. Whichever it is, the last good version stays.
const (
	Unreadable      Reason = "unreadable"       // the store could not give it
	OlderGeneration Reason = "older_generation" // lower than the one that is served: a restored backup, a Git revert
	SameGeneration  Reason = "same_generation"  // as the one that is served, with other content
	KidMissing      Reason = "kid_missing"      // a served key is neither published nor gone
	GoneReturned    Reason = "gone_returned"    // a key that is gone is published again, or its line has vanished
	URLDropped      Reason = "url_dropped"      // a served issuer URL is not in it
	URLNotPermitted Reason = "url_not_permitted"
	URLConflict     Reason = "url_conflict" // another key set has one of its URLs
	DevRefused      Reason = "dev"          // a development key set in production
)

// Rejection is why the stored version of a key set is not served.
type Rejection struct {
	Reason  Reason
	Message string
}

func reject(r Reason, format string, args ...any) *Rejection {
	return &Rejection{r, fmt.Sprintf(format, args...)}
}

// version is what is kept of one version of a key set: what it serves, and what the next version is judged by. The
// key set itself is dropped, since thousands of parsed keys would be garbage that the collector has to walk.
type version struct {
	generation int64
	digest     [sha256.Size]byte
	issuers    []keystore.IssuerURL
	kids, gone keyIDs
	states     [3]int // next, active, retired
	withdrawn  bool
	dev        bool
	pages      []page // one per issuer URL; none when withdrawn
}

// keyIDs is a set of key IDs in one string, a line each: no key ID contains a line feed.
type keyIDs string

func (s keyIDs) with(id keystore.KeyID) keyIDs { return s + keyIDs(id) + "\n" }

func (s keyIDs) has(id string) bool {
	for line := range strings.Lines(string(s)) {
		if line == id+"\n" {
			return true
		}
	}
	return false
}

// each yields every key ID.
func (s keyIDs) each() iter.Seq[string] { return strings.FieldsSeq(string(s)) }

// newVersion renders a key set. Several issuer URLs share the bytes of their JWKS.
func newVersion(s keystore.KeySet, fallback keystore.Cache) (*version, error) {
	v := &version{generation: s.Generation(), digest: s.Digest(), issuers: s.Issuers(), withdrawn: s.Withdrawn(), dev: s.Dev()}
	for _, k := range s.Keys() {
		v.kids = v.kids.with(k.ID())
		v.states[slices.Index(states[:], k.State)]++
	}
	for _, g := range s.Gone() {
		v.gone = v.gone.with(g.ID)
	}
	if v.withdrawn {
		return v, nil
	}
	keys, err := RenderJWKS(s)
	if err != nil {
		return nil, err
	}
	cache := cacheControl(s.Policy().Cache(fallback))
	root, jwks := newDocument([]byte(rootLine), typeText, cache), newDocument(keys, typeJSON, cache)
	v.pages = make([]page, len(v.issuers))
	for i, u := range v.issuers {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		v.pages[i] = page{root: root, discovery: newDocument(body, typeJSON, cache), jwks: jwks}
	}
	return v, nil
}

var states = [3]keystore.State{keystore.Next, keystore.Active, keystore.Retired}

// keys returns how many keys are published.
func (v *version) keys() int { return v.states[0] + v.states[1] + v.states[2] }

// places returns where the version's pages are looked up.
func (v *version) places() []place {
	if v == nil || v.withdrawn {
		return nil
	}
	at := make([]place, len(v.issuers))
	for i, u := range v.issuers {
		at[i] = place{u.Host(), u.Path()}
	}
	return at
}

// follows is nil when next may take the place of v. It holds "accident never unpublishes": an issuer URL goes only by
// a tombstone, a key only by its line in gone, and neither by an older version of the document.
func (v *version) follows(next *version) *Rejection {
	switch {
	case v == nil:
		return nil
	case next.generation < v.generation:
		return reject(OlderGeneration, "its generation is %d, older than %d, which is served", next.generation, v.generation)
	case next.generation == v.generation && next.digest != v.digest:
		return reject(SameGeneration, "its generation is %d like that of the version served, but its content differs", next.generation)
	case next.generation == v.generation:
		return nil
	}
	if r := v.keepsKeys(next); r != nil {
		return r
	}
	return v.keepsURLs(next)
}

func (v *version) keepsKeys(next *version) *Rejection {
	for id := range v.kids.each() {
		if !next.kids.has(id) && !next.gone.has(id) {
			return reject(KidMissing, "it lacks key %s, which is served, without a line in gone", id)
		}
	}
	for id := range v.gone.each() {
		if next.kids.has(id) || !next.gone.has(id) {
			return reject(GoneReturned, "key %s is gone for good, but its line in gone has vanished or it is published again", id)
		}
	}
	return nil
}

func (v *version) keepsURLs(next *version) *Rejection {
	if v.withdrawn || next.withdrawn {
		return nil
	}
	for _, u := range v.issuers {
		if !slices.Contains(next.issuers, u) {
			return reject(URLDropped, "it lacks the issuer URL %s, which is served; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}
