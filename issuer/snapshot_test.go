package issuer

import (
	"testing"

	"github.com/keypost/keypost/keystore"
)

// testPage returns documents that name where they belong.
func testPage(name string) *page {
	d := func(what string) content { return newContent([]byte(name + " " + what)) }
	return &page{owner: keystore.Name(name), discovery: d("discovery"), jwks: d("jwks"), cacheControl: [1]string{"public, " + name}}
}

// A change leaves the snapshot before it as it was, and removes what it names.
func TestSnapshotsAreImmutable(t *testing.T) {
	a, b := keystore.Route{Host: "a.example.com"}, keystore.Route{Host: "b.example.com"}
	first := new(snapshot).with(edit{a: testPage("a")})
	second := first.with(edit{a: nil, b: testPage("b")})
	for want, s := range map[keystore.Name]*snapshot{"a": first, "b": second} {
		at := keystore.Route{Host: string(want) + ".example.com"}
		if n, ok := s.owner(at); n != want || !ok || len(s.pages) != 1 {
			t.Errorf("%s: owner %q of %d pages", want, n, len(s.pages))
		}
	}
}
