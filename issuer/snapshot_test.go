package issuer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/keypost/keypost/keystore"
)

func TestSplit(t *testing.T) {
	for path, want := range map[string]struct {
		path string
		kind kind
	}{
		"":                                    {"", kindRoot},
		"/":                                   {"", kindRoot},
		"/a":                                  {"/a", kindRoot},
		"/a/":                                 {"/a/", kindRoot},
		"/keys.json":                          {"", kindJWKS},
		"/a/keys.json":                        {"/a", kindJWKS},
		"/a/b/keys.json":                      {"/a/b", kindJWKS},
		"/a/keys.json/":                       {"/a/keys.json/", kindRoot},
		"//keys.json":                         {"/", kindJWKS}, // "/" is no issuer's path: not found
		"/keys.json/keys.json":                {"/keys.json", kindJWKS},
		"keys.json":                           {"keys.json", kindRoot},
		"/akeys.json":                         {"/akeys.json", kindRoot},
		"/a/.well-known/openid-configuration": {"/a", kindDiscovery},
		"/.well-known/openid-configuration":   {"", kindDiscovery},
		"/.well-known/openid-configuration/a": {"/.well-known/openid-configuration/a", kindRoot}, // RFC 8414's place, not ours
		"/openid/v1/jwks":                     {"", kindJWKSAlias},
		"/a/openid/v1/jwks":                   {"/a", kindJWKSAlias},
		"/a/openid/v1/jwks/keys.json":         {"/a/openid/v1/jwks", kindJWKS},
		"*":                                   {"*", kindRoot},
	} {
		if p, k := split(path); p != want.path || k != want.kind {
			t.Errorf("split(%q) = %q, %s, want %q, %s", path, p, kindNames[k], want.path, kindNames[want.kind])
		}
	}
}

// testPage returns documents that name where they belong.
func testPage(name string) *page {
	d := func(what string) content { return newContent([]byte(name + " " + what)) }
	return &page{owner: keystore.Name(name), discovery: d("discovery"), jwks: d("jwks"), cacheControl: "public, " + name}
}

func TestFind(t *testing.T) {
	s := newSnapshot().with(edit{
		{"oidc.example.com", "/a"}:   testPage("path"),
		{"oidc.example.com", "/a/b"}: testPage("nested"),
		{"a.example.com", ""}:        testPage("host"),
		{"localhost", "/demo"}:       testPage("dev"),
	})
	for _, tc := range []struct{ host, path, want string }{
		{"oidc.example.com", "/a", rootLine},
		{"oidc.example.com", "/a/keys.json", "path jwks"},
		{"oidc.example.com", "/a/openid/v1/jwks", "path jwks"},
		{"oidc.example.com", "/a/.well-known/openid-configuration", "path discovery"},
		{"oidc.example.com", "/a/b/keys.json", "nested jwks"},
		{"a.example.com", "/", rootLine},
		{"a.example.com", "", rootLine},
		{"a.example.com", "/keys.json", "host jwks"},
		{"localhost", "/demo/keys.json", "dev jwks"},

		{"a.example.com", "//keys.json", ""},
		{"a.example.com", "//", ""},
		{"a.example.com", "/a/keys.json", ""},
		{"a.example.com.", "/keys.json", ""},
		{"A.example.com", "/keys.json", ""}, // the handler lower-cases, the snapshot compares
		{"oidc.example.com", "/keys.json", ""},
		{"oidc.example.com", "/", ""},
		{"oidc.example.com", "//a/keys.json", ""},
		{"oidc.example.com", "/a//keys.json", ""},
		{"oidc.example.com", "/a/./keys.json", ""},
		{"oidc.example.com", "/b/../a/keys.json", ""},
		{"oidc.example.com", "/%61/keys.json", ""},
		{"oidc.example.com", "/a%2Fkeys.json", ""},
		{"oidc.example.com", "/a/keys.json/", ""},
		{"oidc.example.com", "/a/", ""},
		{"oidc.example.com", "/A/keys.json", ""},
		{"oidc.example.com", "/a/keys.JSON", ""},
		{"oidc.example.com", "/a/b/c/keys.json", ""},
		{"oidc.example.com", "/a/keys.json/keys.json", ""},
		{"oidc.example.com", "*", ""},
		{"", "/a/keys.json", ""},
	} {
		d, k := s.find(tc.host, tc.path)
		if d.body != tc.want || (k == kindNone) != (tc.want == "") {
			t.Errorf("%s%s: %q (%s), want %q", tc.host, tc.path, d.body, kindNames[k], tc.want)
		}
	}
}

// A snapshot is held against a plain map over many random changes, and a change must not touch what others hold.
func TestSnapshotIsAMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s, plain := newSnapshot(), map[place]*page{}
	for step := range 500 {
		before, were := s, s.parts
		e := edit{}
		for range rnd.IntN(4) {
			at := place{fmt.Sprintf("h%d.example.com", rnd.IntN(3)), fmt.Sprintf("/p%d", rnd.IntN(60))}
			e[at] = nil
			if rnd.IntN(3) > 0 {
				e[at] = testPage(fmt.Sprint(step, "-", rnd.IntN(1000)))
			}
		}
		s = s.with(e)
		touched := map[uint64]bool{}
		for at, pg := range e {
			touched[s.hash(at)%shards] = true
			plain[at] = pg
		}
		checkParts(t, before, s, were, touched)
		checkSame(t, s, plain)
	}
}

func checkParts(t *testing.T, before, after *Snapshot, were [shards]*part, touched map[uint64]bool) {
	t.Helper()
	for i := range were {
		if before.parts[i] != were[i] {
			t.Fatal("a change touched the snapshot that it began with")
		}
		if !touched[uint64(i)] && after.parts[i] != were[i] {
			t.Fatalf("part %d was copied although nothing in it changed", i)
		}
	}
}

func checkSame(t *testing.T, s *Snapshot, plain map[place]*page) {
	t.Helper()
	count := 0
	for at, pg := range plain {
		if pg != nil {
			count++
		}
		checkPlace(t, s, at, pg)
	}
	if s.issuers() != count {
		t.Fatalf("%d issuers, want %d", s.issuers(), count)
	}
}

// checkPlace holds all that a snapshot says of a place against the page that was put there.
func checkPlace(t *testing.T, s *Snapshot, at place, pg *page) {
	t.Helper()
	if pg == nil {
		if _, k := s.find(at.host, at.path); k != kindNone {
			t.Fatalf("%v is served and should not be", at)
		}
		return
	}
	if owner, ok := s.owner(at); !ok || owner != pg.owner {
		t.Fatalf("%v is owned by %q, want %q", at, owner, pg.owner)
	}
	for path, want := range map[string]content{JWKSPath: pg.jwks, JWKSAliasPath: pg.jwks, DiscoveryPath: pg.discovery, "": newContent([]byte(rootLine))} {
		d, _ := s.find(at.host, at.path+path)
		got := []string{d.body, d.etag[0], d.length[0], d.cacheControl[0]}
		if !slices.Equal(got, []string{want.body, want.etag, strconv.Itoa(len(want.body)), pg.cacheControl}) || len(d.etag)+cap(d.etag) != 2 {
			t.Fatalf("%v%s: %q, want %+v", at, path, got, want)
		}
	}
}

// An issuer among 10,000 that changes must not cost the copy of all of them.
func TestSharding(t *testing.T) {
	e := edit{}
	for i := range 10_000 {
		e[place{"oidc.example.com", fmt.Sprintf("/%d", i)}] = testPage("a")
	}
	for i, p := range newSnapshot().with(e).parts {
		if p.count > 120 { // 39 on average
			t.Errorf("part %d holds %d of 10,000 pages", i, p.count)
		}
	}
}

// A slot is what a request looks at in memory that no cache holds: it must be one line of it.
func TestSlotIsACacheLine(t *testing.T) {
	if size := unsafe.Sizeof(slot{}); size != 64 {
		t.Errorf("a slot has %d bytes", size)
	}
}

// Two places whose hashes are equal are told apart all the same.
func TestEqualHashes(t *testing.T) {
	e := edit{}
	for i := range 20 {
		e[place{"oidc.example.com", fmt.Sprintf("/%d", i)}] = testPage(fmt.Sprint(i))
	}
	p := (*part)(nil).with(e, func(place) uint32 { return 7 })
	for at, pg := range e {
		if found := p.find(7, at); found == nil || p.document(found, kindJWKS).body != pg.jwks.body {
			t.Errorf("%v: %+v", at, found)
		}
	}
	if found := p.find(7, place{"oidc.example.com", "/20"}); found != nil {
		t.Errorf("a place that is not there: %+v", found)
	}
}

// What documents that are no longer served had in their headers is forgotten: a writer who changes a lifetime again and
// again must not fill the memory.
func TestHeaderValuesAreForgotten(t *testing.T) {
	at := place{"oidc.example.com", "/a"}
	s := newSnapshot().with(edit{{"oidc.example.com", "/b"}: testPage("b")})
	for i := range 1000 {
		s = s.with(edit{at: testPage(fmt.Sprint(i))})
	}
	held := 0
	for _, p := range s.parts {
		if p != nil {
			held += len(p.values)
		}
	}
	if held > 6 {
		t.Errorf("%d header values for two issuers", held)
	}
	checkPlace(t, s, at, testPage("999"))
}
