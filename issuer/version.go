package issuer

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/keypost/keypost/issuer/internal/routes"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// version is what is kept of one version of a key set. The key set itself is dropped and the rest is in as few pieces
// as possible: a garbage collection walks thousands of them.
type version struct {
	lastgood.Summary
	states      [3]int // next, active, retired
	activeSince int64  // when the longest active key became so, Unix time; 0 without an active key
	kids        string // the key IDs, sorted, with a line feed after each
	lastEvent   uint64 // eventDigest of the last line of history; 0 without one

	// Set until the version is published:
	pages []routes.Page // one per issuer URL; none when withdrawn

	// Set until the version is logged:
	history []keystore.Event
}

// published drops what is in the snapshot now.
func (v *version) published() { v.pages = nil }

// logged drops what is in the log now.
func (v *version) logged() {
	if v != nil {
		v.history = nil
	}
}

// newVersion renders a key set.
func newVersion(s keystore.KeySet, fallback keystore.Cache) (*version, error) {
	v := &version{Summary: lastgood.SummaryOf(s), history: s.History()}
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
	issuers := s.Issuers()
	v.pages = make([]routes.Page, len(issuers))
	for i, u := range issuers {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		v.pages[i] = routes.Page{Owner: string(s.Name()), Discovery: newContent(body), JWKS: jwks, CacheControl: cache}
	}
	return v, nil
}

var states = [3]keystore.State{keystore.Next, keystore.Active, keystore.Retired}

// eventDigest identifies a line of history.
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
	var all []routeKey
	for r := range v.Routes() {
		all = append(all, routeKey(r))
	}
	return all
}

// summary returns what is kept to judge the next version by; nil when there is no version.
func (v *version) summary() *lastgood.Summary {
	if v == nil {
		return nil
	}
	return &v.Summary
}
