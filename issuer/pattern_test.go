package issuer

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/issuerurl"
)

func TestPatternAllows(t *testing.T) {
	const path, host = "https://oidc.example.com/{name}", "https://{name}.oidc.example.com"
	for _, tc := range []struct {
		pattern string
		name    keystore.Name
		url     string
		want    bool
	}{
		{path, "prod-a", "https://oidc.example.com/prod-a", true},
		{path, "prod-b", "https://oidc.example.com/prod-a", false},
		{path, "prod-a", "https://oidc.example.com/prod-a/v1", false},
		{path, "prod-a", "https://oidc.example.com", false},
		{path, "prod-a", "https://oidc.example.com/PROD-A", false},
		{path, "prod-a", "https://prod-a.oidc.example.com", false},
		{path, "prod-a", "https://oidc.example.net/prod-a", false},
		{path, "{name}", "https://oidc.example.com/{name}", false},
		{host, "prod-a", "https://prod-a.oidc.example.com", true},
		{host, "a", "https://prod-a.oidc.example.com", false},
		{host, "prod-a", "https://x.prod-a.oidc.example.com", false},
		{host, "prod-a", "https://prod-a.oidc.example.com/prod-a", false},
		{"https://oidc.example.com/{name}/v1", "prod-a", "https://oidc.example.com/prod-a/v1", true},
		{"https://oidc.{name}.example.com", "prod-a", "https://oidc.prod-a.example.com", true},
		{"prod-a=https://d111.example.net", "prod-a", "https://d111.example.net", true},
		{"prod-a=https://d111.example.net", "prod-b", "https://d111.example.net", false},
		{"prod-a=https://d111.example.net/x", "prod-a", "https://d111.example.net", false},
	} {
		p, err := ParsePattern(tc.pattern, false)
		if err != nil {
			t.Fatal(err)
		}
		u, err := keystore.ParseIssuerURL(tc.url, false)
		if err != nil {
			continue // no key set can have it
		}
		if got := p.allows(tc.name, u); got != tc.want {
			t.Errorf("%s allows %s to have %s: %v, want %v", tc.pattern, tc.name, tc.url, got, tc.want)
		}
		if got := (Admission{Patterns: []Pattern{p}}).Permitted()(tc.name, issuerurl.RouteOf(tc.url)); got != tc.want {
			t.Errorf("%s permits %s at the route of %s: %v, want %v", tc.pattern, tc.name, tc.url, got, tc.want)
		}
	}
}

func TestPatternAllowsHost(t *testing.T) {
	for _, tc := range []struct {
		pattern, host string
		want          bool
	}{
		{"https://oidc.example.com/{name}", "oidc.example.com", true},
		{"https://oidc.example.com/{name}", "a.oidc.example.com", false},
		{"https://oidc.example.com/{name}", "example.com", false},
		{"https://{name}.example.com", "prod-a.example.com", true},
		{"https://{name}.example.com", "example.com", false},
		{"https://{name}.example.com", ".example.com", false},
		{"https://{name}.example.com", "a.b.example.com", false},
		{"https://{name}.example.com", "-a.example.com", false},
		{"https://{name}.example.com", "a.example.com.evil.net", false},
		{"https://a.{name}.example.com/x", "a.b.example.com", true},
		{"https://a.{name}.example.com/x", "b.example.com", false},
		{"prod-a=https://d111.example.net/x", "d111.example.net", true},
		{"prod-a=https://d111.example.net/x", "d112.example.net", false},
		{"https://localhost:8443/{name}", "localhost", true},
	} {
		p, err := ParsePattern(tc.pattern, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.AllowsHost(tc.host); got != tc.want {
			t.Errorf("%s allows the host %s: %v, want %v", tc.pattern, tc.host, got, tc.want)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for pattern, why := range map[string]string{
		"":                                          "{name}",
		"https://oidc.example.com":                  "{name}",
		"https://{name}.example.com/{name}":         "once",
		"a=https://oidc.example.com/{name}":         "once",
		"A=https://oidc.example.com":                "name",
		"=https://oidc.example.com":                 "name",
		"http://oidc.example.com/{name}":            "https://",
		"https://oidc.example.com/{name}/":          "slash",
		"https://oidc.example.com:8443/{name}":      "port",
		"https://OIDC.example.com/{name}":           "lower-case",
		"https://oidc.example.com/?{name}":          "query",
		"https://oidc.example.com/x{name}":          "whole part",
		"https://oidc.example.com/{name}x":          "whole part",
		"https://x-{name}.example.com":              "whole part",
		"https://{name}":                            "dot",
		"https://{name}/keys.json":                  "dot",
		"https://oidc.example.com/keys.json/{name}": "keys.json",
		"https://{NAME}.example.com":                "{name}",
	} {
		if _, err := ParsePattern(pattern, false); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: error %v, want one with %q", pattern, err, why)
		}
	}
	if _, err := ParsePattern("https://localhost:8443/{name}", true); err != nil {
		t.Errorf("a port in development: %v", err)
	}
}

func TestHostsForCertificates(t *testing.T) {
	var patterns []Pattern
	for _, raw := range []string{
		"https://oidc.example.com/{name}", "https://{name}.oidc.example.com", "https://{name}.eu.example.com/v1",
		"https://oidc.{name}.example.com", "prod-a=https://d111.example.net/x",
	} {
		p, err := ParsePattern(raw, false)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	want := []string{"oidc.example.com", "*.oidc.example.com", "*.eu.example.com", "d111.example.net"}
	if got := Hosts(patterns); !slices.Equal(got, want) {
		t.Errorf("Hosts = %q, want %q", got, want)
	}
}

// No URL is allowed for two names unless both are written.
func TestDisjoint(t *testing.T) {
	tests := []struct {
		patterns []string
		meet     bool
	}{
		{[]string{"https://oidc.example.com/{name}", "https://{name}.oidc.example.com"}, false},
		{[]string{"https://oidc.example.com/{name}", "https://oidc.example.com/{name}"}, false},
		{[]string{"https://oidc.example.com/{name}", "https://oidc.example.com/eu/{name}"}, false},
		{[]string{"https://oidc.example.com/{name}", "https://oidc.example.org/{name}"}, false},
		{[]string{"https://{name}.example.com/x", "https://x.example.com/{name}"}, false}, // they meet for one name, x
		{[]string{"https://{name}.example.com/y", "https://x.example.com/{name}"}, true},
		{[]string{"https://oidc.example.com/a/{name}", "https://oidc.example.com/{name}/b"}, true},
		{[]string{"https://oidc.example.com/{name}", "prod-a=https://oidc.example.com/prod-a"}, false},
		{[]string{"https://oidc.example.com/{name}", "prod-a=https://oidc.example.com/prod-b"}, true},
		{[]string{"https://oidc.example.com/{name}", "prod-a=https://oidc.example.com/Prod_B"}, false}, // no key set has that name
		{[]string{"https://oidc.example.com/{name}", "prod-a=https://oidc.example.com"}, false},
		{[]string{"prod-a=https://oidc.example.com", "prod-b=https://oidc.example.com"}, false}, // written so on purpose
		{[]string{"prod-a=https://a.example.com", "prod-a=https://b.example.com"}, false},
	}
	for _, tc := range tests {
		var all, turned []Pattern
		for _, raw := range tc.patterns {
			p, err := ParsePattern(raw, false)
			if err != nil {
				t.Fatal(err)
			}
			all, turned = append(all, p), append([]Pattern{p}, turned...)
		}
		for _, patterns := range [][]Pattern{all, turned} {
			if err := disjoint(patterns); (err != nil) != tc.meet {
				t.Errorf("%q: %v, want an error: %t", tc.patterns, err, tc.meet)
			}
		}
	}
}
