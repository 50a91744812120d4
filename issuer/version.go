package issuer

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/keypost/keypost/issuer/internal/routes"
	"github.com/keypost/keypost/keystore"
)

// Reason says why the stored version of a key set is not served, as a metric label.
type Reason = keystore.Reason

// The reasons beside keystore's own. Whichever it is, the last good version stays.
const (
	Unreadable      Reason = "unreadable" // the store could not give it
	URLNotPermitted Reason = "url_not_permitted"
	URLConflict     Reason = "url_conflict" // another key set has one of its URLs
	DevRefused      Reason = "dev"          // a development key set in production
)

// version is what is kept of one version of a key set. The key set itself is dropped and the rest is in as few pieces
// as possible: a garbage collection walks thousands of them.
type version struct {
	keystore.Summary
	states      [3]int // next, active, retired
	activeSince int64  // when the longest active key became so, Unix time; 0 without an active key
	dev         bool
	kids        string // the key IDs, sorted, with a line feed after each
	lastEvent   uint64 // eventDigest of the last line of history; 0 without one

	routes []routeKey // where its issuer URLs are looked up, also those of a tombstone

	// Until it is published:
	issuers []keystore.IssuerURL
	pages   []routes.Page // one per issuer URL; none when withdrawn

	// Until the log has told of it:
	history []keystore.Event
}

// published drops what is in the snapshot now.
func (v *version) published() { v.issuers, v.pages = nil, nil }

// told drops what is in the log now.
func (v *version) told() {
	if v != nil {
		v.history = nil
	}
}

// newVersion renders a key set.
func newVersion(s keystore.KeySet, fallback keystore.Cache) (*version, error) {
	v := &version{Summary: s.Summary(), issuers: s.Issuers(), dev: s.Dev(), history: s.History()}
	for _, u := range v.issuers {
		v.routes = append(v.routes, routeKeyOf(u))
	}
	if n := len(v.history); n > 0 {
		v.lastEvent = eventDigest(v.history[n-1])
	}
	var kids strings.Builder
	for _, k := range s.Keys() {
		kids.WriteString(string(k.ID()) + "\n")
		v.states[slices.Index(states[:], k.State)]++
		if since := k.PromotedAt.Unix(); k.State == keystore.Active && (v.activeSince == 0 || since < v.activeSince) {
			v.activeSince = since
		}
	}
	v.kids = kids.String()
	if v.Withdrawn() {
		return v, nil
	}
	keys, err := RenderJWKS(s)
	if err != nil {
		return nil, err
	}
	cache := cacheControl(s.Policy().Cache(fallback))
	jwks := newContent(keys)
	v.pages = make([]routes.Page, len(v.issuers))
	for i, u := range v.issuers {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		v.pages[i] = routes.Page{Owner: string(s.Name()), Discovery: newContent(body), JWKS: jwks, CacheControl: cache}
	}
	return v, nil
}

var states = [3]keystore.State{keystore.Next, keystore.Active, keystore.Retired}

// eventDigest tells lines of history apart.
func eventDigest(e keystore.Event) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s\x00%s\x00%s\x00%t", e.At.UnixNano(), e.By, e.What, e.Why, e.Forced)
	return h.Sum64()
}

// kidList returns the IDs of the published keys, sorted; none of a tombstone.
func (v *version) kidList() []string {
	if v.kids == "" || v.Withdrawn() {
		return nil
	}
	return strings.Split(strings.TrimSuffix(v.kids, "\n"), "\n")
}

// keys returns how many keys are published.
func (v *version) keys() int { return v.states[0] + v.states[1] + v.states[2] }

// places returns where the version's pages are looked up: none of a tombstone.
func (v *version) places() []routeKey {
	if v == nil || v.Withdrawn() {
		return nil
	}
	return v.routes
}

// had reports whether one of the version's issuer URLs is looked up by k, also that of a tombstone.
func (v *version) had(k routeKey) bool { return slices.Contains(v.routes, k) }

// follows is nil when next may take the place of v, which is nil when nothing is served yet.
func (v *version) follows(next *version) *keystore.Rejection {
	if v == nil {
		return next.Follows(nil)
	}
	return next.Follows(&v.Summary)
}
