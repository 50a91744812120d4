package keystore

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"strings"
)

// Why a version of a key set may not take the place of the last good one. Whichever it is, the last good one stays.
const (
	ReasonOlderGeneration Reason = "older_generation" // a restored backup, a Git revert
	ReasonSameGeneration  Reason = "same_generation"  // as the last good one, with other content
	ReasonGenerationJump  Reason = "generation_jump"  // so high that nothing could follow it
	ReasonKidMissing      Reason = "kid_missing"      // a key is neither published nor gone
	ReasonKeyChanged      Reason = "key_changed"      // a kid stands for another key than before
	ReasonURLDropped      Reason = "url_dropped"      // an issuer URL is not in it
)

// Reasons returns every reason for which [Parse] or [Summary.Follows] refuses a version. Metrics have a line for each,
// so that an alert sees a 0 before the first rejection.
func Reasons() []Reason {
	return []Reason{
		ReasonBroken, ReasonNewerVersion, ReasonOlderGeneration, ReasonSameGeneration, ReasonGenerationJump,
		ReasonKidMissing, ReasonKeyChanged, ReasonGoneReturned, ReasonURLDropped,
	}
}

// Rejection is why a version of a key set may not take the place of the last good one.
type Rejection struct {
	Reason  Reason
	Message string // one clause that begins with "it" or "its", or names a key
}

// Reject returns a Rejection.
func Reject(r Reason, format string, args ...any) *Rejection {
	return &Rejection{r, fmt.Sprintf(format, args...)}
}

// Summary is what is kept of a version of a key set to judge the next one by. It is in as few pieces as possible,
// since whoever serves or copies ten thousand key sets keeps one of each.
type Summary struct {
	generation int64
	digest     [sha256.Size]byte
	urls       lines
	keys, gone lines // a kid each, with the fingerprint of the key if the kid is not that itself
	withdrawn  bool
}

// Summary returns what is kept of s to judge the next version by.
func (s KeySet) Summary() Summary {
	o := Summary{generation: s.generation, digest: s.Digest(), withdrawn: s.Withdrawn()}
	o.urls = linesOf(s.issuers, IssuerURL.String)
	o.keys = linesOf(s.keys, func(k Key) string { return keyLine(k.id, k.fingerprint) })
	o.gone = linesOf(s.gone, func(g Gone) string { return keyLine(g.ID, g.Fingerprint) })
	text := o.urls + o.keys + o.gone // one piece of memory
	urls, keys := len(o.urls), len(o.keys)
	o.urls, o.keys, o.gone = text[:urls], text[urls:][:keys], text[urls+keys:]
	return o
}

// keyLine leaves out what can be told from the kid. No kid contains a space.
func keyLine(id KeyID, f Fingerprint) string {
	if f == "" || string(f) == string(id) {
		return string(id)
	}
	return string(id) + " " + string(f)
}

// holdings are keyLines for look-up.
type holdings struct {
	byKid    map[string]Fingerprint // empty where it is not known which key it was
	material map[Fingerprint]bool
}

func (s lines) holdings() holdings {
	h := holdings{map[string]Fingerprint{}, map[Fingerprint]bool{}}
	for line := range s.each() {
		id, f, _ := strings.Cut(line, " ")
		material, known := Gone{ID: KeyID(id), Fingerprint: Fingerprint(f)}.Material()
		if known {
			h.material[material] = true
		}
		h.byKid[id] = material
	}
	return h
}

// Generation is that of the version.
func (o *Summary) Generation() int64 { return o.generation }

// Digest is [KeySet.Digest] of the version.
func (o *Summary) Digest() [sha256.Size]byte { return o.digest }

// Withdrawn tells that the version is a tombstone.
func (o *Summary) Withdrawn() bool { return o.withdrawn }

// Gone returns what is known of the lines in gone: key IDs, and the fingerprints where they are recorded.
func (o *Summary) Gone() []Gone {
	var all []Gone
	for line := range o.gone.each() {
		id, f, _ := strings.Cut(line, " ")
		g := Gone{ID: KeyID(id), Fingerprint: Fingerprint(f)}
		g.Fingerprint, _ = g.Material()
		all = append(all, g)
	}
	return all
}

// Issuers yields the issuer URLs; the first is canonical.
func (o *Summary) Issuers() iter.Seq[string] { return o.urls.each() }

// Follows is nil when the version may take the place of was, the last good one; nil for was means that there is none.
// It holds "accident never unpublishes": an issuer URL goes only by a tombstone, a key only by its line in gone, and
// neither by an older version of the document.
func (o *Summary) Follows(was *Summary) *Rejection {
	switch {
	case was == nil && o.generation > maxFirstGeneration:
		return Reject(ReasonGenerationJump, "its generation is %d; a key set without a last good version begins at %d at most, so that it can go on; keypost issuer accept lowers it", o.generation, int64(maxFirstGeneration))
	case was == nil:
		return nil
	case o.generation < was.generation:
		return Reject(ReasonOlderGeneration, "its generation is %d, older than %d of the last good version", o.generation, was.generation)
	case o.generation == was.generation && o.digest != was.digest:
		return Reject(ReasonSameGeneration, "its generation is %d as in the last good version, but its content differs", o.generation)
	case o.generation == was.generation:
		return nil
	case o.generation-was.generation > maxGenerationJump:
		return Reject(ReasonGenerationJump, "its generation is %d, more than %d beyond %d of the last good version; keypost issuer accept --served-generation %d lowers it", o.generation, maxGenerationJump, was.generation, was.generation)
	}
	if r := o.keepsKeys(was); r != nil {
		return r
	}
	if was.withdrawn && !o.withdrawn { // by hand: Reopen leaves every key behind
		if id, returns := o.Returning(nil, was); returns {
			return Reject(ReasonGoneReturned, "key %s was withdrawn with the last good version and never comes back; add the issuer again with new keys", id)
		}
	}
	return o.keepsIssuers(was)
}

// Returning returns the ID of a key that the version publishes, that was (nil for none) does not, and that left with the
// tombstone: by its key ID or its material. A key that is served already is no return, or whoever writes a tombstone
// later could hold up the key set.
func (o *Summary) Returning(was, tombstone *Summary) (id string, returns bool) {
	held, gone, served := tombstone.keys.holdings(), tombstone.gone.holdings(), holdings{}
	if was != nil && !was.withdrawn {
		served = was.keys.holdings()
	}
	here := o.keys.holdings()
	for id := range o.keys.ids() {
		f := here.byKid[id]
		if is, already := served.byKid[id]; already && is == f {
			continue
		}
		_, heldKid := held.byKid[id]
		_, goneKid := gone.byKid[id]
		if heldKid || goneKid || held.material[f] || gone.material[f] {
			return id, true
		}
	}
	return "", false
}

// keepsKeys compares key material beside kids: another key under a kid that relying parties trust is another issuer.
func (o *Summary) keepsKeys(was *Summary) *Rejection {
	here, left, served := o.keys.holdings(), o.gone.holdings(), was.keys.holdings()
	for id := range was.keys.ids() {
		if r := keepsKey(id, served.byKid[id], here, left); r != nil {
			return r
		}
	}
	buried := was.gone.holdings()
	for id := range was.gone.ids() {
		_, back := here.byKid[id]
		_, kept := left.byKid[id]
		f := buried.byKid[id]
		if back || !kept || f != "" && !left.material[f] {
			return Reject(ReasonGoneReturned, "key %s is gone for good, but its line in gone has vanished or changed, or it is published again", id)
		}
	}
	return nil
}

// keepsKey judges what became of one key, whose fingerprint is f. A line in gone counts only if what left is known to
// be that key: else it could come back under another kid.
func keepsKey(id string, f Fingerprint, here, left holdings) *Rejection {
	if is, published := here.byKid[id]; published {
		if is != f {
			return Reject(ReasonKeyChanged, "key %s is another key than in the last good version (fingerprint %s, was %s); the key behind a kid never changes", id, is, f)
		}
		return nil
	}
	is, gone := left.byKid[id]
	switch {
	case !gone:
		return Reject(ReasonKidMissing, "it lacks key %s of the last good version without a line in gone", id)
	case left.material[f]:
		return nil
	case is == "":
		return Reject(ReasonKidMissing, "its line in gone for key %s of the last good version lacks the key's fingerprint: %s", id, f)
	}
	return Reject(ReasonKeyChanged, "its line in gone for key %s is about another key than that of the last good version, whose fingerprint is %s", id, f)
}

func (o *Summary) keepsIssuers(was *Summary) *Rejection {
	if was.withdrawn || o.withdrawn {
		return nil
	}
	here := map[string]bool{}
	for u := range o.urls.each() {
		here[u] = true
	}
	for u := range was.urls.each() {
		if !here[u] {
			return Reject(ReasonURLDropped, "it lacks the issuer URL %s of the last good version; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}

// lines is a list of issuer URLs or keys in one string, a line each: none of them contains a line feed.
type lines string

func linesOf[T any](all []T, text func(T) string) lines {
	var b strings.Builder
	for _, one := range all {
		b.WriteString(text(one) + "\n")
	}
	return lines(b.String())
}

// each yields every line.
func (s lines) each() iter.Seq[string] {
	return func(yield func(string) bool) {
		for l := range strings.Lines(string(s)) {
			if !yield(l[:len(l)-1]) {
				return
			}
		}
	}
}

// ids yields the kid of every keyLine, in the order of the document.
func (s lines) ids() iter.Seq[string] {
	return func(yield func(string) bool) {
		for l := range s.each() {
			id, _, _ := strings.Cut(l, " ")
			if !yield(id) {
				return
			}
		}
	}
}
