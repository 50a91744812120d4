package verify

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/keystore"
)

// isIPv6 reports whether a dialled address is one of IPv6.
func isIPv6(address string) bool { return strings.HasPrefix(address, "[") }

// isLoopback reports whether an address is this machine's own. Names such as localhost have two, and a development server uses one.
func isLoopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().IsLoopback()
}

// nobodyListens reports whether an error says that nobody listens at an address.
func nobodyListens(err error) bool {
	return slices.ContainsFunc([]error{syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH}, func(e error) bool { return errors.Is(err, e) })
}

// checkAddresses reports who was asked, and returns the looks that are to be checked. This machine may have no route for an IP
// version: then it cannot ask, and that is not the issuer's fault. What the network answers is not an excuse, since anyone who owns the
// address could send that, and neither is anything when another address of the version was reached.
func (v *visitor) checkAddresses(looks []look) (seen []look) {
	reached := func(like func(string) bool) bool {
		return slices.ContainsFunc(looks, func(l look) bool { return l.reached && like(l.Address) })
	}
	var names, quiet, noRoute, unasked []string
	for _, l := range looks {
		sameVersion := func(a string) bool { return isIPv6(a) == isIPv6(l.Address) }
		switch {
		case !l.asked:
			unasked = append(unasked, l.Address)
		case v.o.Dev && !l.reached && isLoopback(l.Address) && nobodyListens(l.Discovery.Err) && reached(isLoopback):
			quiet = append(quiet, l.Address)
		case v.o.Connect == "" && !reached(sameVersion) && !v.o.hasRoute(l.Address):
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
		if len(quiet) > 0 {
			text += "; nothing listens at " + list(quiet)
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
