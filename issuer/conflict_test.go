package issuer

import (
	"net/http"
	"testing"
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
	b.rejected("a", URLConflict)
	b.rejected("b", URLConflict)
	b.rejected("d", "")
	if lines := b.said(); len(lines) != 2 {
		t.Fatalf("logged %q, want one line per rejected key set; what is published at the start has none", lines)
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

func TestConflictWithAServedKeySet(t *testing.T) {
	b := newBench(t)
	b.put(shared(t, "b", 1, 2))
	b.poll()
	b.said()
	b.put(shared(t, "a", 9, 1)) // first in the alphabet and of a higher generation, and yet second
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("a", URLConflict)
	b.rejected("b", "")
	b.saidOnce("warn key set rejected; its last good version, if any, stays served a url_conflict")

	// Changes of the owner, and even its disappearance, leave it the owner.
	b.put(shared(t, "b", 2, 2))
	b.poll()
	b.store.Delete("b")
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("a", URLConflict)
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

// The tombstone and the newcomer may come in one batch, in either order of their names.
func TestOwnerLeavesInTheSameBatch(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		owner, newcomer := names[0], names[1]
		b := newBench(t)
		b.put(shared(t, owner, 1, 1))
		b.poll()
		tombstone := shared(t, owner, 2, 1)
		tombstone.withdrawn = true
		b.put(tombstone, shared(t, newcomer, 1, 2))
		b.poll()
		b.serves(urlShared, key(t, 2))
		b.rejected(newcomer, "")

		// Nor can the first one come back now.
		again := shared(t, owner, 3, 3)
		again.gone = append(again.gone, key(t, 1))
		b.put(again)
		b.poll()
		b.serves(urlShared, key(t, 2))
		b.rejected(owner, URLConflict)
	}
}

// A key set that reaches for a second URL loses nothing of the first when it does not get it.
func TestConflictOverASecondURL(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "a", generation: 1})
	b.poll()
	wider := doc{name: "a", generation: 2, issuers: []string{urlA, urlShared}}
	b.put(wider, shared(t, "b", 1, 2))
	b.poll()
	b.serves(urlA)
	b.refuses(urlShared, http.StatusNotFound)
	b.rejected("a", URLConflict)
	b.rejected("b", URLConflict)

	// The one that gives way clears the other's path, the same poll.
	narrow := doc{name: "a", generation: 3}
	b.put(narrow)
	b.poll()
	b.serves(urlA)
	b.serves(urlShared, key(t, 2))
}

// A version that is rejected for another reason claims nothing.
func TestRejectedVersionClaimsNoURL(t *testing.T) {
	b := newBench(t)
	dev := shared(t, "a", 1, 1)
	dev.dev = true
	b.put(dev, shared(t, "b", 1, 2))
	b.poll()
	b.serves(urlShared, key(t, 2))
	b.rejected("a", DevRefused)
}
