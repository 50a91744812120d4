package lastgood

import (
	"iter"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// Summary has what must be known of a version of a key set to judge the next one. It is immutable, and its text is in one
// piece of memory, since publishers and mirrors keep one for each of many thousand key sets.
type Summary struct {
	generation int64
	digest     keystore.Digest
	urls       lines
	keys, gone lines // keyLine of each
	withdrawn  bool
}

// SummaryOf returns the Summary of a version.
func SummaryOf(v keystore.KeySet) Summary {
	s := Summary{generation: v.Generation(), digest: v.Digest(), withdrawn: v.Withdrawn()}
	s.urls = linesOf(v.Issuers(), keystore.IssuerURL.String)
	s.keys = linesOf(v.Keys(), func(k keystore.Key) string { return keyLine(k.ID(), k.Fingerprint()) })
	s.gone = linesOf(v.Gone(), goneLine)
	text := s.urls + s.keys + s.gone // one piece of memory
	urls, keys := len(s.urls), len(s.keys)
	s.urls, s.keys, s.gone = text[:urls], text[urls:][:keys], text[urls+keys:]
	return s
}

// Generation returns that of the version.
func (s *Summary) Generation() int64 { return s.generation }

// Digest returns [keystore.KeySet.Digest] of the version.
func (s *Summary) Digest() keystore.Digest { return s.digest }

// Withdrawn reports whether the version is a tombstone.
func (s *Summary) Withdrawn() bool { return s.withdrawn }

// Issuers yields the issuer URLs; the first is canonical.
func (s *Summary) Issuers() iter.Seq[string] { return s.urls.each() }

// Routes yields the routes of the issuer URLs, in the order of Issuers.
func (s *Summary) Routes() iter.Seq[Route] {
	return func(yield func(Route) bool) {
		for u := range s.urls.each() {
			if !yield(RouteOf(u)) {
				return
			}
		}
	}
}

// served yields the routes of a version that is in use: none of a tombstone, and none of nil.
func (s *Summary) served() iter.Seq[Route] {
	if s == nil || s.withdrawn {
		return func(func(Route) bool) {}
	}
	return s.Routes()
}

// serves reports whether served yields r.
func (s *Summary) serves(r Route) bool {
	for at := range s.served() {
		if at == r {
			return true
		}
	}
	return false
}

// Gone returns the lines in gone with their key IDs, how the keys left and, where known, their fingerprints. The dates
// are not kept.
func (s *Summary) Gone() []keystore.Gone {
	var all []keystore.Gone
	for g := range s.gone.keys() {
		g.Fingerprint, _ = g.Material()
		all = append(all, g)
	}
	return all
}

// Route is what requests for an issuer URL are looked up by: its host, without the port that a development issuer may
// have, and its path. Two issuer URLs with one Route overlap ([keystore.IssuerURL.Overlaps]).
type Route struct{ Host, Path string }

// RouteOf returns the Route of an issuer URL given as text, which is how a [Summary] keeps it. It checks nothing: for
// any other text it returns some Route.
func RouteOf(issuer string) Route {
	rest := strings.TrimPrefix(issuer, "https://")
	end := strings.IndexByte(rest+"/", '/')
	host, _, _ := strings.Cut(rest[:end], ":")
	return Route{host, rest[end:]}
}

// keyLine is a key in a Summary: its kid, and its fingerprint if that is known and is not the kid. No kid contains a
// space.
func keyLine(id keystore.KeyID, f keystore.Fingerprint) string {
	if f == "" || string(f) == string(id) {
		return string(id)
	}
	return string(id) + " " + string(f)
}

// goneLine is a line in gone in a Summary: that of the key, and a suffix if it was revoked.
func goneLine(g keystore.Gone) string {
	if g.Why == keystore.Revoked {
		return keyLine(g.ID, g.Fingerprint) + revokedSuffix
	}
	return keyLine(g.ID, g.Fingerprint)
}

const revokedSuffix = " !" // which no kid and no fingerprint contains

// keyring is an index of lines of keys.
type keyring struct {
	byKid    map[string]keystore.Fingerprint // empty where it is not known which key it was
	material map[keystore.Fingerprint]bool
}

func (s lines) keyring() keyring {
	r := keyring{map[string]keystore.Fingerprint{}, map[keystore.Fingerprint]bool{}}
	for g := range s.keys() {
		material, known := g.Material()
		if known {
			r.material[material] = true
		}
		r.byKid[string(g.ID)] = material
	}
	return r
}

// lines is a list of issuer URLs or keys, a line each. None of them contains a line feed.
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

// keys yields what every keyLine or goneLine says, in the order of the document: a key that is not gone as one that was
// removed.
func (s lines) keys() iter.Seq[keystore.Gone] {
	return func(yield func(keystore.Gone) bool) {
		for l := range s.each() {
			key, revoked := strings.CutSuffix(l, revokedSuffix)
			id, f, _ := strings.Cut(key, " ")
			g := keystore.Gone{ID: keystore.KeyID(id), Fingerprint: keystore.Fingerprint(f), Why: keystore.Removed}
			if revoked {
				g.Why = keystore.Revoked
			}
			if !yield(g) {
				return
			}
		}
	}
}

// ids yields the kid of every line of a key, in the order of the document.
func (s lines) ids() iter.Seq[string] {
	return func(yield func(string) bool) {
		for g := range s.keys() {
			if !yield(string(g.ID)) {
				return
			}
		}
	}
}
