package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer"
)

func TestACMEHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		issuers    []string
		aliases    map[string]string
		configured []string
		want       []string
		err        string
	}{
		"the issuer's":          {issuers: []string{"https://oidc.example.com/{name}"}, want: []string{"oidc.example.com"}},
		"two":                   {issuers: []string{"https://b.example.com/{name}", "a=https://a.example.com"}, want: []string{"a.example.com", "b.example.com"}},
		"behind a CDN":          {issuers: []string{"https://oidc.example.com/{name}"}, aliases: map[string]string{"origin.example.com": "oidc.example.com"}, want: []string{"origin.example.com"}},
		"behind one, listed":    {issuers: []string{"https://oidc.example.com/{name}"}, aliases: map[string]string{"origin.example.com": "oidc.example.com"}, configured: []string{"origin.example.com", "oidc.example.com"}, want: []string{"origin.example.com", "oidc.example.com"}},
		"a pattern":             {issuers: []string{"https://{name}.oidc.example.com"}, err: "hosts below oidc.example.com: name each"},
		"a pattern, listed":     {issuers: []string{"https://{name}.oidc.example.com"}, configured: []string{"a.oidc.example.com"}, want: []string{"a.oidc.example.com"}},
		"one that is forgotten": {issuers: []string{"https://oidc.example.com/{name}", "a=https://a.example.com"}, configured: []string{"oidc.example.com"}, err: "does not have a.example.com"},
	} {
		patterns, err := issuer.ParsePatterns(tt.issuers, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := acmeHosts(tt.configured, certHosts(issuer.Hosts(patterns), tt.aliases))
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, tt.want, tt.err)
		}
	}
}
