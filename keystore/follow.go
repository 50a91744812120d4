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
	ReasonKidMissing      Reason = "kid_missing"      // a key is neither published nor gone
	ReasonURLDropped      Reason = "url_dropped"      // an issuer URL is not in it
)

// Rejection is why a version of a key set may not take the place of the last good one.
type Rejection struct {
	Reason  Reason
	Message string // one clause that begins with "it" or "its", or names a key
}

// Reject returns a Rejection.
func Reject(r Reason, format string, args ...any) *Rejection {
	return &Rejection{r, fmt.Sprintf(format, args...)}
}

// Outline is what is kept of a version of a key set to judge the next one by. It is in as few pieces as possible,
// since whoever serves or copies ten thousand key sets keeps one of each.
type Outline struct {
	generation       int64
	digest           [sha256.Size]byte
	urls, kids, gone lines
	withdrawn        bool
}

// Outline returns s's outline.
func (s KeySet) Outline() Outline {
	o := Outline{generation: s.generation, digest: s.Digest(), withdrawn: s.Withdrawn()}
	o.urls = linesOf(s.issuers, IssuerURL.String)
	o.kids = linesOf(s.keys, func(k Key) string { return string(k.ID()) })
	o.gone = linesOf(s.gone, func(g Gone) string { return string(g.ID) })
	text := o.urls + o.kids + o.gone // one piece of memory
	urls, kids := len(o.urls), len(o.kids)
	o.urls, o.kids, o.gone = text[:urls], text[urls:][:kids], text[urls+kids:]
	return o
}

// Generation is that of the version.
func (o *Outline) Generation() int64 { return o.generation }

// Digest is [KeySet.Digest] of the version.
func (o *Outline) Digest() [sha256.Size]byte { return o.digest }

// Withdrawn tells that the version is a tombstone.
func (o *Outline) Withdrawn() bool { return o.withdrawn }

// Issuers yields the issuer URLs; the first is canonical.
func (o *Outline) Issuers() iter.Seq[string] { return o.urls.each() }

// Follows is nil when the version may take the place of was, the last good one; nil for was means that there is none.
// It holds "accident never unpublishes": an issuer URL goes only by a tombstone, a key only by its line in gone, and
// neither by an older version of the document.
func (o *Outline) Follows(was *Outline) *Rejection {
	switch {
	case was == nil:
		return nil
	case o.generation < was.generation:
		return Reject(ReasonOlderGeneration, "its generation is %d, older than %d of the last good version", o.generation, was.generation)
	case o.generation == was.generation && o.digest != was.digest:
		return Reject(ReasonSameGeneration, "its generation is %d as in the last good version, but its content differs", o.generation)
	case o.generation == was.generation:
		return nil
	}
	if r := o.keepsKeys(was); r != nil {
		return r
	}
	return o.keepsIssuers(was)
}

func (o *Outline) keepsKeys(was *Outline) *Rejection {
	for id := range was.kids.each() {
		if !o.kids.has(id) && !o.gone.has(id) {
			return Reject(ReasonKidMissing, "it lacks key %s of the last good version without a line in gone", id)
		}
	}
	for id := range was.gone.each() {
		if o.kids.has(id) || !o.gone.has(id) {
			return Reject(ReasonGoneReturned, "key %s is gone for good, but its line in gone has vanished or it is published again", id)
		}
	}
	return nil
}

func (o *Outline) keepsIssuers(was *Outline) *Rejection {
	if was.withdrawn || o.withdrawn {
		return nil
	}
	for u := range was.urls.each() {
		if !o.urls.has(u) {
			return Reject(ReasonURLDropped, "it lacks the issuer URL %s of the last good version; only a withdrawal ends an issuer", u)
		}
	}
	return nil
}

// lines is a set of issuer URLs or key IDs in one string, a line each: none of them contains a line feed.
type lines string

func linesOf[T any](all []T, text func(T) string) lines {
	var b strings.Builder
	for _, one := range all {
		b.WriteString(text(one) + "\n")
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
func (s lines) each() iter.Seq[string] {
	return func(yield func(string) bool) {
		for l := range strings.Lines(string(s)) {
			if !yield(l[:len(l)-1]) {
				return
			}
		}
	}
}
