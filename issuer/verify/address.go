package verify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/keypost/keypost/internal/publicnet"
	"github.com/keypost/keypost/keystore"
)

// isIPv6 reports whether a dialled address is one of IPv6.
func isIPv6(address string) bool { return strings.HasPrefix(address, "[") }

func family(address string) string {
	if isIPv6(address) {
		return "IPv6"
	}
	return "IPv4"
}

// split returns the addresses of the looks of which is is true, and the other looks.
func split(looks []look, is func(look) bool) (addresses []string, rest []look) {
	for _, l := range looks {
		if is(l) {
			addresses = append(addresses, l.Address)
		} else {
			rest = append(rest, l)
		}
	}
	return addresses, rest
}

// unseen returns a function that reports whether this machine cannot ask an address: it has no route for the address's
// IP version. What the network answers is no excuse, since whoever owns the address could send that, and neither is
// anything when another address of the version was reached.
func (o Options) unseen(looks []look) func(look) bool {
	reached := map[string]bool{}
	for _, l := range looks {
		if l.reached() {
			reached[family(l.Address)] = true
		}
	}
	return func(l look) bool {
		return l.Asked && !reached[family(l.Address)] && o.Connect == "" && !o.hasRoute(l.Address)
	}
}

// idle returns a function that reports whether nothing listens at a loopback address although something does at another.
// Names such as localhost have two, and a development server uses one.
func idle(looks []look) func(look) bool {
	used := slices.ContainsFunc(looks, look.reached)
	return func(l look) bool {
		a, err := netip.ParseAddrPort(l.Address)
		return used && err == nil && a.Addr().IsLoopback() && l.hasError(syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH)
	}
}

// checkAddresses reports who was asked, and returns the looks that are to be checked.
func (v *visitor) checkAddresses(looks []look) []look {
	var quiet []string
	if v.o.Dev {
		quiet, looks = split(looks, idle(looks))
	}
	hidden, looks := split(looks, v.o.unseen(looks))
	unasked, looks := split(looks, func(l look) bool { return !l.Asked })
	if asked, _ := split(looks, func(look) bool { return true }); len(asked) > 0 {
		text := fmt.Sprintf("%s was asked at %s", v.url.Host(), list(asked))
		if v.o.Connect != "" {
			text += " and nowhere else"
		}
		if len(quiet) > 0 {
			text += "; nothing listens at " + list(quiet)
		}
		v.OK("addresses", "%s", text)
	}
	if len(hidden) > 0 {
		report := v.Warn
		if len(looks) == 0 {
			report = v.Fail
		}
		report("address-unasked", "not seen: %s at %s, because this machine has no route for %s", v.url.Host(), list(hidden), family(hidden[0]))
	}
	if len(unasked) > 0 {
		v.Fail("address-unasked", "not seen: %d further addresses of %s were not asked (%s)", len(unasked), v.url.Host(), list(unasked))
	}
	return looks
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
