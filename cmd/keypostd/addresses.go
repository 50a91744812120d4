package main

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

// place is an address of the configuration, with the name of its setting.
type place struct{ name, value string }

// checkApart refuses addresses of which two listeners cannot both be opened.
func (f *findings) checkApart(c config) {
	all := []place{{"listen.address", c.Listen.Address}, {"admin.address", c.Admin.Address}, {"admin.probes", c.Admin.Probes}}
	if a := c.Listen.TLS.ACME; a != nil {
		all = append(all, place{"listen.tls.acme.httpAddress", a.HTTPAddress})
	}
	for i, later := range all {
		for _, former := range all[:i] {
			f.refuse(samePlace(former.value, later.value), "%s (%s) and %s (%s) are one place, where only one of them can listen; give one of them another port",
				former.name, former.value, later.name, later.value)
		}
	}
}

// samePlace reports whether one listener keeps the other from its address. Names are compared as they are.
func samePlace(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" { // 0: any port that is free
		return false
	}
	return everyInterface(hostA) || everyInterface(hostB) || strings.EqualFold(hostA, hostB) || sameIP(hostA, hostB)
}

// everyInterface reports whether a listener at host takes the port everywhere: Go listens on IPv4 and IPv6 for each of these.
func everyInterface(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.Unmap().IsUnspecified()
}

func sameIP(a, b string) bool {
	ipA, errA := netip.ParseAddr(a)
	ipB, errB := netip.ParseAddr(b)
	return errA == nil && errB == nil && ipA.Unmap() == ipB.Unmap()
}

// checkCache refuses a certificate cache among the key sets, whose directory is public data that other programs write and copy.
func (f *findings) checkCache(dir string, a *acmeConfig) {
	if a == nil || dir == "" || a.Cache == "" {
		return
	}
	keySets, err := filepath.Abs(dir)
	cache, err2 := filepath.Abs(a.Cache)
	if err != nil || err2 != nil {
		return // no working directory: what opens them says so
	}
	inside, err := filepath.Rel(keySets, cache)
	f.refuse(err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)),
		"listen.tls.acme.cache (%s) is inside dir (%s), whose key sets others write, copy and read: name a directory elsewhere, for private keys alone", a.Cache, dir)
}
