package main

import (
	"maps"
	"slices"

	"github.com/keypost/keypost/internal/dnsname"
	"github.com/keypost/keypost/issuer"
)

// checkAliases refuses aliases by which an issuer would be out of reach, or that lead nowhere.
func (f *findings) checkAliases(aliases map[string]string, patterns []issuer.Pattern) {
	allowed := func(host string) bool {
		return slices.ContainsFunc(patterns, func(p issuer.Pattern) bool { return p.AllowsHost(host) })
	}
	for _, from := range slices.Sorted(maps.Keys(aliases)) {
		to := aliases[from]
		_, chain := aliases[to]
		switch {
		case !dnsname.IsSubdomain(from) || !dnsname.IsSubdomain(to):
			f.refuse(true, "hostAliases: %q: %q must both be host names in lower case without a port", from, to)
		case chain:
			f.refuse(true, "hostAliases: %q leads to %q, which is an alias itself; name the issuer's host", from, to)
		case len(patterns) == 0: // an error of its own
		case allowed(from):
			f.refuse(true, "hostAliases: %q is a host that issuerURLs allow, and as an alias of %q it would hide the issuer there; "+
				"let the CDN ask for another host name", from, to)
		case !allowed(to):
			f.refuse(true, "hostAliases: %q leads to %q, which no pattern in issuerURLs has; name the issuer's host", from, to)
		}
	}
}
