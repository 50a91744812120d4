package issuer

import (
	"testing"

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
		"//keys.json":                         {"/", kindJWKS}, // "/" is not an issuer's path: not found
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
	return &page{owner: keystore.Name(name), discovery: d("discovery"), jwks: d("jwks"), cacheControl: [1]string{"public, " + name}}
}

func TestFind(t *testing.T) {
	s := new(snapshot).with(edit{
		{Host: "oidc.example.com", Path: "/a"}:   testPage("path"),
		{Host: "oidc.example.com", Path: "/a/b"}: testPage("nested"),
		{Host: "a.example.com", Path: ""}:        testPage("host"),
		{Host: "localhost", Path: "/demo"}:       testPage("dev"),
	})
	for _, tc := range []struct{ host, path, want string }{
		{"oidc.example.com", "/a", rootText},
		{"oidc.example.com", "/a/keys.json", "path jwks"},
		{"oidc.example.com", "/a/openid/v1/jwks", "path jwks"},
		{"oidc.example.com", "/a/.well-known/openid-configuration", "path discovery"},
		{"oidc.example.com", "/a/b/keys.json", "nested jwks"},
		{"a.example.com", "/", rootText},
		{"a.example.com", "", rootText},
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
		d, k, ok := s.find(tc.host, tc.path)
		body := ""
		if ok {
			body = d.body
		}
		if body != tc.want || ok != (tc.want != "") {
			t.Errorf("%s%s: %q (%s), want %q", tc.host, tc.path, body, kindNames[k], tc.want)
		}
	}
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
