package issuer

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// shared is a key set that claims the URL which names a, b and c may all have.
func shared(t *testing.T, name string, generation, k int64) doc {
	d := doc{name: name, generation: generation, issuers: []string{urlShared}}
	d.keys = append(d.keys, key(t, k))
	return d
}

func TestConflictAtColdStartServesNeither(t *testing.T) {
	b := newBench(t)
	b.put(shared(t, "a", 1, 1), shared(t, "b", 1, 2), doc{name: "d", generation: 1})
	b.poll()
	b.refuses(urlShared, http.StatusServiceUnavailable) // there is such an issuer, so that 404 would be a lie
	b.rejected("a", lastgood.ReasonURLConflict)
	b.rejected("b", lastgood.ReasonURLConflict)
	b.rejected("d", "")
	if lines := b.said(); len(lines) != 3 {
		t.Fatalf("logged %q, want one line per rejected key set and one for all that is published at the start", lines)
	}
	if err := b.Ready(); err != nil {
		t.Errorf("not ready, although no waiting ends the conflict: %v", err)
	}
	for range 3 {
		b.poll()
	}
	b.silent()

	// A third one does not help either of them.
	b.put(shared(t, "c", 1, 3))
	b.poll()
	b.refuses(urlShared, http.StatusServiceUnavailable)
	b.said()

	// Removing all but one ends it.
	b.store.Delete("a")
	b.store.Delete("c")
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("b", "")
}

// A broken document claims the URLs in it that the patterns allow it. One whose URLs nobody can tell claims none: it would hold
// others up for as long as nobody mends it.
func TestARejectedDocumentKeepsItsURLAtColdStart(t *testing.T) {
	whole := string(shared(t, "b", 1, 2).text(t))
	for name, tc := range map[string]struct {
		text string
		want keystore.Reason
	}{
		"broken":                   {strings.ReplaceAll(whole, "active", "x"), lastgood.ReasonURLConflict},
		"broken, with another URL": {strings.ReplaceAll(strings.ReplaceAll(whole, "active", "x"), urlShared, urlB), ""},
		"junk":                     {"junk", ""},
		"of a newer version":       {strings.ReplaceAll(whole, "keypost.dev/v1", "keypost.dev/v2"), ""},
		"none":                     {"", ""},
	} {
		b := newBench(t)
		b.put(shared(t, "a", 1, 1), doc{name: "d", generation: 1})
		if tc.text != "" {
			b.store.Set("b", []byte(tc.text))
		}
		b.store.Set("stranger", []byte("junk")) // which no pattern allows the URL
		b.poll()
		if got := b.reason("a"); got != tc.want {
			t.Errorf("%s: a is rejected as %q, want %q", name, got, tc.want)
		}
		b.put(shared(t, "a", 2, 1)) // and what only the watch reports is judged alike
		b.poll()
		if got := b.reason("a"); got != tc.want {
			t.Errorf("%s: then a is rejected as %q, want %q", name, got, tc.want)
		}
		b.rejected("d", "")
		b.store.Set("b", []byte(strings.Replace(whole, urlShared, urlB, 1)))
		b.poll()
		b.poll()
		b.serves(urlShared, key(t, 1))
	}
}

func TestConflictWithAServedKeySet(t *testing.T) {
	b := newBench(t)
	b.put(shared(t, "b", 1, 2))
	b.poll()
	b.said()
	b.put(shared(t, "a", 9, 1)) // first in the alphabet and of a higher generation, and yet second
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("a", lastgood.ReasonURLConflict)
	b.rejected("b", "")
	b.saidOnce("warn key set rejected; its last good version, if any, stays served a url_conflict")

	// Changes of the owner, and even its disappearance, leave it the owner.
	b.put(shared(t, "b", 2, 2))
	b.poll()
	b.store.Delete("b")
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("a", lastgood.ReasonURLConflict)
	b.said()
	b.poll()
	b.silent()

	// Only its tombstone sets the URL free.
	tombstone := shared(t, "b", 3, 2)
	tombstone.withdrawn = true
	b.put(tombstone)
	b.poll()
	b.serves(urlShared, key(t, 1))
	b.rejected("a", "")
}
