package issuer

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
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
	d := func(what string) Document { return newDocument([]byte(name+" "+what), typeText, []string{"public"}) }
	return &page{root: d("issuer"), discovery: d("discovery"), jwks: d("jwks")}
}

func TestFind(t *testing.T) {
	s := newSnapshot().with(edit{
		{"oidc.example.com", "/a"}:   testPage("path"),
		{"oidc.example.com", "/a/b"}: testPage("nested"),
		{"a.example.com", ""}:        testPage("host"),
		{"localhost", "/demo"}:       testPage("dev"),
	}, true)
	for _, tc := range []struct{ host, path, want string }{
		{"oidc.example.com", "/a", "path issuer"},
		{"oidc.example.com", "/a/keys.json", "path jwks"},
		{"oidc.example.com", "/a/openid/v1/jwks", "path jwks"},
		{"oidc.example.com", "/a/.well-known/openid-configuration", "path discovery"},
		{"oidc.example.com", "/a/b/keys.json", "nested jwks"},
		{"a.example.com", "/", "host issuer"},
		{"a.example.com", "", "host issuer"},
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
		if d == nil {
			if tc.want != "" || k != kindNone {
				t.Errorf("%s%s: nothing (%s), want %q", tc.host, tc.path, kindNames[k], tc.want)
			}
			continue
		}
		if string(d.body) != tc.want {
			t.Errorf("%s%s: %q, want %q", tc.host, tc.path, d.body, tc.want)
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
				e[at] = testPage(fmt.Sprint(step))
			}
		}
		s = s.with(e, true)
		touched := map[uint64]bool{}
		for at, pg := range e {
			touched[s.part(at)] = true
			if plain[at] = pg; pg == nil {
				delete(plain, at)
			}
		}
		checkParts(t, before, s, were, touched)
		checkSame(t, s, plain)
	}
}

func checkParts(t *testing.T, before, after *Snapshot, were [shards]map[place]*page, touched map[uint64]bool) {
	t.Helper()
	same := func(a, b map[place]*page) bool {
		return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	}
	for i := range were {
		if !same(before.parts[i], were[i]) {
			t.Fatal("a change touched the snapshot that it began with")
		}
		if !touched[uint64(i)] && !same(after.parts[i], were[i]) {
			t.Fatalf("part %d was copied although nothing in it changed", i)
		}
	}
}

func checkSame(t *testing.T, s *Snapshot, plain map[place]*page) {
	t.Helper()
	n := 0
	for _, part := range s.parts {
		n += len(part)
	}
	if n != len(plain) {
		t.Fatalf("%d pages, want %d", n, len(plain))
	}
	for at, pg := range plain {
		if d, _ := s.find(at.host, at.path); d != &pg.root {
			t.Fatalf("%v: not the page that was put there", at)
		}
	}
}

// An issuer among 10,000 that changes must not cost the copy of all of them.
func TestSharding(t *testing.T) {
	e := edit{}
	for i := range 10_000 {
		e[place{"oidc.example.com", fmt.Sprintf("/%d", i)}] = &page{}
	}
	s := newSnapshot().with(e, true)
	for i, part := range s.parts {
		if len(part) > 120 { // 39 on average
			t.Errorf("part %d holds %d of 10,000 pages", i, len(part))
		}
	}
}
