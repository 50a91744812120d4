package publicnet

import (
	"net/netip"
	"testing"
)

// TestHidden: an address that only this network can reach passes for no public one.
func TestHidden(t *testing.T) {
	for address, hidden := range map[string]bool{
		"10.0.0.5": true, "172.16.0.1": true, "192.168.1.1": true, "127.0.0.1": true, "::1": true, "169.254.1.1": true, "fe80::1": true,
		"fe80::1%eth0": true, "fd00::1": true, "100.64.0.1": true, "100.127.255.254": true, "0.0.0.0": true, "::": true, "224.0.0.1": true,
		"ff02::1": true, "::ffff:10.0.0.5": true, "255.255.255.255": true, "0.1.2.3": true, "240.0.0.1": true, "198.18.0.1": true, "fec0::1": true,
		"100.63.255.255": false, "100.128.0.1": false, "8.8.8.8": false, "2600::1": false, "198.20.0.1": false, "::ffff:8.8.8.8": false, "172.32.0.1": false,
	} {
		if got := Hidden(netip.MustParseAddr(address)); got != hidden {
			t.Errorf("Hidden(%s) is %t", address, got)
		}
	}
}
