package issuer

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// version is what is kept of one version of a key set. The key set itself is dropped and the rest is in as few pieces
// as possible: a garbage collection walks thousands of them.
type version struct {
	lastgood.Summary
	states      [3]int // next, active, retired
	activeSince int64  // when the longest active key became so, Unix time; 0 without an active key
	keysDigest  uint64 // of the key IDs with their states
	changed     int64  // when keys or their states last changed, Unix time: as its dates say, or as this process saw
	forced      int64  // when a key was last promoted with force, Unix time; 0 when history says of none
	pages       []page // one per issuer URL; none when withdrawn
}

// follow notes what only a comparison with the version that was served before can tell: anyone who writes a document by hand may
// date it as he likes.
func (v *version) follow(was *version, now time.Time) {
	switch {
	case was == nil:
	case was.keysDigest == v.keysDigest && was.Withdrawn() == v.Withdrawn():
		v.changed = max(v.changed, was.changed)
	default:
		v.changed = max(v.changed, now.Unix())
	}
}

// newVersion renders a key set.
func newVersion(s keystore.KeySet, fallback keystore.Cache) (*version, error) {
	v := &version{Summary: lastgood.SummaryOf(s)}
	for _, e := range s.History() {
		if e.Forced && strings.HasPrefix(e.What, "promote key ") {
			v.forced = max(v.forced, e.At.Unix())
		}
	}
	for _, g := range s.Gone() {
		v.changed = max(v.changed, g.At.Unix())
	}
	digest := fnv.New64a()
	for _, k := range s.Keys() {
		fmt.Fprintf(digest, "%s\x00%s\n", k.ID(), k.State)
		v.changed = max(v.changed, k.PublishedAt.Unix(), k.PromotedAt.Unix(), k.RetiredAt.Unix())
		v.states[slices.Index(states[:], k.State)]++
		if since := k.PromotedAt.Unix(); k.State == keystore.Active && (v.activeSince == 0 || since < v.activeSince) {
			v.activeSince = since
		}
	}
	v.keysDigest = digest.Sum64()
	if v.Withdrawn() {
		return v, nil
	}
	keys, err := RenderJWKS(s)
	if err != nil {
		return nil, err
	}
	cache := [1]string{cacheControl(s.Policy().Cache(fallback))}
	jwks := newContent(keys)
	issuers := s.Issuers()
	v.pages = make([]page, len(issuers))
	for i, u := range issuers {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		v.pages[i] = page{at: u.Route(), owner: s.Name(), discovery: newContent(body), jwks: jwks, cacheControl: cache}
	}
	return v, nil
}

var states = [3]keystore.State{keystore.Next, keystore.Active, keystore.Retired}

// kidList returns the IDs of the published keys, sorted; none of a tombstone or of nil.
func (v *version) kidList() []keystore.KeyID {
	if v == nil || v.Withdrawn() {
		return nil
	}
	return v.Kids()
}

// keys returns how many keys are published.
func (v *version) keys() int { return v.states[0] + v.states[1] + v.states[2] }
