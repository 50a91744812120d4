package issuer

import (
	"fmt"
	"strings"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/issuerurl"
)

// Pattern binds issuer URLs to names of key sets, so that anyone who may write one key set never speaks for the issuer
// of another. It is "https://oidc.example.com/{name}" or "https://{name}.oidc.example.com" for any name, or
// "prod-a=https://d111.example.net" for one.
type Pattern struct {
	name keystore.Name // the only name that it is for; empty for a pattern with {name}
	url  string
	key  keystore.Route // of url; one of the two may hold {name}
}

const nameHole = "{name}"

// ParsePattern reads one pattern. dev allows ports, as for development key sets.
func ParsePattern(raw string, dev bool) (Pattern, error) {
	p := Pattern{url: raw}
	if name, url, ok := strings.Cut(raw, "="); ok {
		p.name, p.url = keystore.Name(name), url
		if err := p.name.Check(); err != nil {
			return Pattern{}, fmt.Errorf("issuer URL pattern %q: %w", raw, err)
		}
	}
	if holes := strings.Count(p.url, nameHole); (holes == 1) == (p.name != "") || holes > 1 {
		return Pattern{}, fmt.Errorf("issuer URL pattern %q: put {name} into it once, or write NAME=URL to bind one URL to one key set", raw)
	}
	if _, err := keystore.ParseIssuerURL(strings.Replace(p.url, nameHole, "x", 1), dev); err != nil {
		return Pattern{}, fmt.Errorf("issuer URL pattern %q: %w", raw, err)
	}
	if p.name == "" && !p.wholePart() {
		return Pattern{}, fmt.Errorf("issuer URL pattern %q: {name} must be a whole part between dots or slashes, or two names could meet in one URL", raw)
	}
	p.key = issuerurl.RouteOf(p.url)
	return p, nil
}

// wholePart reports whether {name} stands between dots or slashes. With https://x{name}.example.com the key set "a" would
// own what "xa" owns under https://{name}.example.com.
func (p Pattern) wholePart() bool {
	before, after, _ := strings.Cut(p.url, nameHole)
	begins := strings.HasSuffix(before, "/") || strings.HasSuffix(before, ".")
	return begins && (after == "" || strings.ContainsAny(after[:1], "./:"))
}

// URL returns the issuer URL of the key set called name, outside development, and whether the pattern has one for it.
func (p Pattern) URL(name keystore.Name) (keystore.IssuerURL, bool) {
	if p.name != "" && p.name != name || name.Check() != nil {
		return keystore.IssuerURL{}, false
	}
	u, err := keystore.ParseIssuerURL(strings.Replace(p.url, nameHole, string(name), 1), false)
	return u, err == nil && p.allows(name, u)
}

// allows reports whether the key set called name may have the issuer URL u.
func (p Pattern) allows(name keystore.Name, u keystore.IssuerURL) bool {
	if p.name != "" {
		return p.name == name && p.url == u.String()
	}
	return strings.Replace(p.url, nameHole, string(name), 1) == u.String()
}

// allowsAt reports whether the key set called name may have an issuer URL at r.
func (p Pattern) allowsAt(name keystore.Name, r keystore.Route) bool {
	if p.name != "" {
		return p.name == name && p.key == r
	}
	filled := func(pattern, s string) bool { // thousands of names may be asked for at a start
		before, after, hole := strings.Cut(pattern, nameHole)
		if !hole {
			return pattern == s
		}
		rest, begins := strings.CutPrefix(s, before)
		n, ends := strings.CutSuffix(rest, after)
		return begins && ends && n == string(name)
	}
	return filled(p.key.Host, r.Host) && filled(p.key.Path, r.Path)
}

// AllowsHost reports whether a URL with that host, in lower case and without a port, could match.
func (p Pattern) AllowsHost(host string) bool {
	before, after, hole := strings.Cut(p.key.Host, nameHole)
	if !hole {
		return host == p.key.Host
	}
	rest, ok := strings.CutPrefix(host, before)
	if !ok {
		return false
	}
	name, ok := strings.CutSuffix(rest, after)
	return ok && keystore.Name(name).Check() == nil
}

// ParsePatterns reads all patterns of a server, which must not contradict each other.
func ParsePatterns(raw []string, dev bool) ([]Pattern, error) {
	var all []Pattern
	for _, one := range raw {
		p, err := ParsePattern(one, dev)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, disjoint(all)
}

// disjoint returns an error when two patterns allow one URL for different names: the writer of one key set could keep the
// other one's issuer from being served. Two patterns without {name} may bind one URL to two names, so that a URL can pass
// from a withdrawn key set to its successor.
func disjoint(patterns []Pattern) error {
	for i, p := range patterns {
		for _, q := range patterns[:i] {
			explicit := p.name != "" && q.name != ""
			if a, b, ok := p.overlap(q); ok && a != b && !explicit {
				return fmt.Errorf("issuer URL patterns %q and %q allow one URL for the key sets %q and %q; change one of them", q.url, p.url, b, a)
			}
		}
	}
	return nil
}

// overlap reports whether both patterns allow one URL, and returns the name for which each of them does. They are
// compared part by part; {name} in the same part of both gives no two names one URL.
func (p Pattern) overlap(q Pattern) (a, b keystore.Name, ok bool) {
	ps, qs := p.parts(), q.parts()
	if len(ps) != len(qs) {
		return "", "", false
	}
	a, b = p.name, q.name
	for i := range ps {
		switch {
		case ps[i] == qs[i]:
		case ps[i] == nameHole:
			a = keystore.Name(qs[i])
		case qs[i] == nameHole:
			b = keystore.Name(ps[i])
		default:
			return "", "", false
		}
	}
	return a, b, a.Check() == nil && b.Check() == nil
}

// parts returns the labels of the host, an empty one, and the segments of the path.
func (p Pattern) parts() []string {
	return append(strings.Split(p.key.Host, "."), strings.Split(p.key.Path, "/")...)
}

// Hosts returns the hosts of patterns, for checking certificates at start: "*.oidc.example.com" where the name is
// the first label. Where it is another label, no certificate can be for every name, and the host is left out.
func Hosts(patterns []Pattern) []string {
	var hosts []string
	for _, p := range patterns {
		if strings.LastIndex(p.key.Host, nameHole) <= 0 {
			hosts = append(hosts, strings.Replace(p.key.Host, nameHole, "*", 1))
		}
	}
	return hosts
}
