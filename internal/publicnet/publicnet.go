// Package publicnet knows which network addresses the public internet has a route to, and which this machine has.
package publicnet

import (
	"net"
	"net/netip"
	"slices"
)

// Hidden reports whether clouds on the public internet cannot reach an address, whatever answers there here. A private
// network's DNS may lead to such a one while the world's leads elsewhere (split-horizon DNS).
func Hidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return !a.IsGlobalUnicast() || a.IsPrivate() || slices.ContainsFunc(hiddenRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// hiddenRanges returns those that no cloud has a route to and that package netip has no word for: "this network", the
// space that carriers share (RFC 6598), benchmarks, the reserved rest of IPv4, and the old site-local range of IPv6.
func hiddenRanges() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{"0.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15", "240.0.0.0/4", "fec0::/10"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// HasRoute reports whether this machine would send packets to address. Connecting a UDP socket sends none.
func HasRoute(address string) bool {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
