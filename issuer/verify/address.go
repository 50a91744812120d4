package verify

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/keypost/keypost/keystore"
)

// LookupFunc returns the addresses of a host.
type LookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// Bounds of a visit. A relying party is sent to any of a host's addresses, so each of them is asked by itself. The
// largest CDNs have about a dozen for one name.
const (
	maxAddresses = 32
	atOnce       = 8
)

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// port is the port of an issuer URL; only development URLs name one.
func port(u keystore.IssuerURL) string {
	authority, _, _ := strings.Cut(strings.TrimPrefix(u.String(), "https://"), "/")
	if _, port, err := net.SplitHostPort(authority); err == nil {
		return port
	}
	return "443"
}

// addresses returns what to dial, as HOST:PORT, in a stable order.
func (o Options) addresses(ctx context.Context, u keystore.IssuerURL) ([]string, error) {
	if o.Connect != "" {
		return []string{o.Connect}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	ips, err := o.Lookup(ctx, u.Host())
	if err != nil {
		return nil, err
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	var list []string
	for _, ip := range slices.Compact(ips) {
		list = append(list, net.JoinHostPort(ip.String(), port(u)))
	}
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: u.Host(), IsNotFound: true}
	}
	return list, nil
}

// isIPv6 reports whether a dialled address is one of IPv6.
func isIPv6(address string) bool { return strings.HasPrefix(address, "[") }

func family(address string) string {
	if isIPv6(address) {
		return "IPv6"
	}
	return "IPv4"
}

// hasRoute reports whether this machine would send packets to address. Connecting a UDP socket sends none.
func hasRoute(address string) bool {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// unseen returns the addresses that this machine cannot ask: those of an IP version that it has no route for. What the
// network answers is no excuse, since whoever owns the address could send that, and neither is anything when another
// address of the version was reached.
func (o Options) unseen(looks []look) []string {
	reached := map[string]bool{}
	for _, l := range looks {
		if l.reached() {
			reached[family(l.Address)] = true
		}
	}
	var list []string
	for _, l := range looks {
		if l.Asked && !l.reached() && !reached[family(l.Address)] && o.Connect == "" && !o.hasRoute(l.Address) {
			list = append(list, l.Address)
		}
	}
	return list
}

// idle returns the loopback addresses at which nothing listens although something does at another. Names such as
// localhost have two, and a development server uses one.
func idle(looks []look) []string {
	if !slices.ContainsFunc(looks, look.reached) {
		return nil
	}
	var list []string
	for _, l := range looks {
		a, err := netip.ParseAddrPort(l.Address)
		if err == nil && a.Addr().IsLoopback() && l.hasError(syscall.ECONNREFUSED, syscall.EADDRNOTAVAIL, syscall.ENETUNREACH) {
			list = append(list, l.Address)
		}
	}
	return list
}

// without returns the looks at other addresses than these.
func without(looks []look, addresses []string) []look {
	return slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return slices.Contains(addresses, l.Address) })
}

// checkAddresses says who was asked, and returns the looks that are to be judged.
func (r *report) checkAddresses(looks []look) []look {
	var quiet []string
	if r.o.Dev {
		quiet = idle(looks)
		looks = without(looks, quiet)
	}
	hidden := r.o.unseen(looks)
	looks = without(looks, hidden)
	unasked := addressesOf(slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return l.Asked }))
	looks = without(looks, unasked)

	if len(looks) > 0 {
		text := fmt.Sprintf("%s was asked at %s", r.url.Host(), list(addressesOf(looks)))
		if r.o.Connect != "" {
			text += " and nowhere else"
		}
		if len(quiet) > 0 {
			text += "; nothing listens at " + list(quiet)
		}
		r.ok("addresses", "%s", text)
	}
	if len(hidden) > 0 {
		add := r.warn
		if len(looks) == 0 {
			add = r.fail
		}
		add("addresses", "relying parties may be sent there and get another answer; look again from a machine that has a route",
			"not seen: %s at %s, because this machine has no route for %s", r.url.Host(), list(hidden), family(hidden[0]))
	}
	if len(unasked) > 0 {
		r.fail("addresses", fmt.Sprintf("relying parties may be sent there and get another answer; give the host at most %d addresses", maxAddresses),
			"not seen: %d further addresses of %s were not asked (%s)", len(unasked), r.url.Host(), list(unasked))
	}
	return looks
}

// hiddenRanges are those that no cloud has a route to and that package netip has no word for: "this network", the space
// that carriers share (RFC 6598), benchmarks, the reserved rest of IPv4, and the old site-local range of IPv6.
func hiddenRanges() []netip.Prefix {
	var list []netip.Prefix
	for _, p := range []string{"0.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15", "240.0.0.0/4", "fec0::/10"} {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// Hidden reports whether clouds on the public internet cannot reach an address, whatever answers there here. A private
// network's DNS may lead to such a one while the world's leads elsewhere (split-horizon DNS).
func Hidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return !a.IsGlobalUnicast() || a.IsPrivate() || slices.ContainsFunc(hiddenRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
}

// checkPublic warns of addresses that were asked and that clouds never see. An operator who declares the issuer private
// knows.
func (r *report) checkPublic(looks []look, stored *keystore.KeySet) {
	if r.o.Connect != "" || r.o.Dev || stored != nil && stored.Policy().Private {
		return
	}
	var inside []string
	for _, l := range looks {
		if a, err := netip.ParseAddrPort(l.Address); err == nil && Hidden(a.Addr()) {
			inside = append(inside, a.Addr().String())
		}
	}
	if len(inside) > 0 {
		r.warn("addresses", "look again from outside: with split-horizon DNS nothing here says what clouds see; an issuer that is meant to be private says so in its policy (keypost issuer set NAME --private)",
			"here the name leads to %s, which clouds on the public internet cannot reach", list(inside))
	}
}

func addressesOf(looks []look) []string {
	var all []string
	for _, l := range looks {
		all = append(all, l.Address)
	}
	return all
}

// list joins with "and", and counts what is too much to read.
func list(all []string) string {
	const most = maxAddresses
	if extra := len(all) - most; extra > 0 {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	if n := len(all); n > 1 {
		return strings.Join(all[:n-1], ", ") + " and " + all[n-1]
	}
	return strings.Join(all, "")
}
