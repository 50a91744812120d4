package verify

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/keystore"
)

// isIPv6 reports whether a dialled address is one of IPv6.
func isIPv6(address string) bool { return strings.HasPrefix(address, "[") }

// checkAddresses reports who was asked, and returns the looks that are to be checked. This machine may have no route for an IP
// version: then it cannot ask, and that is not the issuer's fault. What the network answers is not an excuse, since anyone who owns the
// address could send that, and neither is anything when another address of the version was reached.
func (v *visitor) checkAddresses(looks []look) (seen []look) {
	var names, noRoute, unasked []string
	for _, l := range looks {
		reached := slices.ContainsFunc(looks, func(o look) bool { return o.reached && isIPv6(o.Address) == isIPv6(l.Address) })
		switch {
		case !l.asked:
			unasked = append(unasked, l.Address)
		case v.o.Connect == "" && !reached && !v.o.hasRoute(l.Address):
			noRoute = append(noRoute, l.Address)
		default:
			seen, names = append(seen, l), append(names, l.Address)
		}
	}
	if len(seen) > 0 {
		text := v.url.Host() + " was asked at " + list(names)
		if v.o.Connect != "" {
			text += " and nowhere else"
		}
		v.OK("addresses", "%s", text)
	}
	if len(noRoute) > 0 {
		report := v.Warn
		if len(seen) == 0 {
			report = v.Fail
		}
		report("address-unasked", "not seen: %s at %s, because this machine has no route there", v.url.Host(), list(noRoute))
	}
	if len(unasked) > 0 {
		v.Fail("address-unasked", "not seen: %d further addresses of %s were not asked (%s)", len(unasked), v.url.Host(), list(unasked))
	}
	return seen
}

// checkPublic warns of addresses that were asked and that clouds never see. An operator who declares the issuer private
// knows.
func (v *visitor) checkPublic(looks []look, stored *keystore.KeySet) {
	if v.o.Connect != "" || v.o.Dev || stored != nil && stored.Policy().Private {
		return
	}
	var inside []string
	for _, l := range looks {
		if a, err := netip.ParseAddrPort(l.Address); err == nil && publicnet.Hidden(a.Addr()) {
			inside = append(inside, a.Addr().String())
		}
	}
	if len(inside) > 0 {
		v.Warn("dns-hidden", "here the name leads to %s, which clouds on the public internet cannot reach", list(inside))
	}
}
