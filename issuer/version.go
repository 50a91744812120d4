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

// version is what is kept of one version of a key set: what the next version is judged by. The key set itself is
// dropped and the rest is in as few pieces as possible: a garbage collection walks thousands of them.
type version struct {
	generation       int64
	digest           [sha256.Size]byte
	urls, kids, gone lines
	states           [3]int // next, active, retired
	activeSince      int64  // when the longest active key became so, Unix time; 0 without an active key
	withdrawn        bool
	dev              bool

	// Until it is published:
	issuers []keystore.IssuerURL
	pages   []page // one per issuer URL; none when withdrawn
}

// lines is a set of issuer URLs or key IDs in one string, a line each: none of them contains a line feed.
type lines string

func linesOf(all iter.Seq[string]) lines {
	var b strings.Builder
	for one := range all {
		b.WriteString(one + "\n")
	}
	return lines(b.String())
}

func (s lines) has(line string) bool {
	for l := range strings.Lines(string(s)) {
		if l == line+"\n" {
			return true
		}
	}
	return false
}

// each yields every line.
func (s lines) each() iter.Seq[string] { return strings.FieldsSeq(string(s)) }

// pack moves the lines into one piece of memory.
func (v *version) pack() {
	text := v.urls + v.kids + v.gone
	urls, kids := len(v.urls), len(v.kids)
	v.urls, v.kids, v.gone = text[:urls], text[urls:][:kids], text[urls+kids:]
}

// published drops what is in the snapshot now.
func (v *version) published() { v.issuers, v.pages = nil, nil }

// newVersion renders a key set.
func newVersion(s keystore.KeySet, fallback keystore.Cache) (*version, error) {
	v := &version{generation: s.Generation(), digest: s.Digest(), issuers: s.Issuers(), withdrawn: s.Withdrawn(), dev: s.Dev()}
	for _, k := range s.Keys() {
		v.states[slices.Index(states[:], k.State)]++
		if since := k.PromotedAt.Unix(); k.State == keystore.Active && (v.activeSince == 0 || since < v.activeSince) {
			v.activeSince = since
		}
	}
	v.urls = linesOf(each(v.issuers, keystore.IssuerURL.String))
	v.kids = linesOf(each(s.Keys(), func(k keystore.Key) string { return string(k.ID()) }))
	v.gone = linesOf(each(s.Gone(), func(g keystore.Gone) string { return string(g.ID) }))
	v.pack()
	if v.withdrawn {
		return v, nil
	}
	keys, err := RenderJWKS(s)
	if err != nil {
		return nil, err
	}
	cache := cacheControl(s.Policy().Cache(fallback))
	jwks := newContent(keys)
	v.pages = make([]page, len(v.issuers))
	for i, u := range v.issuers {
		body, err := RenderDiscovery(s, u)
		if err != nil {
			return nil, err
		}
		v.pages[i] = page{owner: s.Name(), discovery: newContent(body), jwks: jwks, cacheControl: cache}
	}
	return v, nil
}

// each yields what text says of every element.
func each[T any](all []T, text func(T) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, one := range all {
			if !yield(text(one)) {
				return
			}
		}
	}
}

var states = [3]keystore.State{keystore.Next, keystore.Active, keystore.Retired}

// keys returns how many keys are published.
func (v *version) keys() int { return v.states[0] + v.states[1] + v.states[2] }

// places returns where the version's pages are looked up.
func (v *version) places() []place {
	if v == nil || v.withdrawn {
		return nil
	}
	var all []place
	for u := range v.urls.each() {
		all = append(all, placeOf(u))
	}
	return all
}

// placeOf cuts an issuer URL (keystore.ParseIssuerURL) into its host, without the port of a development issuer, and path.
func placeOf(url string) place {
	rest := strings.TrimPrefix(url, "https://")
	end := strings.IndexByte(rest+"/", '/')
	host, _, _ := strings.Cut(rest[:end], ":")
	return place{host, rest[end:]}
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
	for u := range v.urls.each() {
		if !next.urls.has(u) {
			return reject(URLDropped, "it lacks the issuer URL %s, which is served; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}
