package main

import "testing"

// Connections of the listener for challenges take memory and files, too.
func TestFitCountsTheChallenges(t *testing.T) {
	var c config
	without := c.fit(512 << 20).Listen.MaxConnections
	c.Listen.TLS.ACME = &acmeConfig{}
	if n := c.fit(512 << 20).Listen.MaxConnections; n != without {
		t.Errorf("%d connections without challenges http-01, want %d", n, without)
	}
	c.Listen.TLS.ACME.HTTPAddress = ":80"
	if n := c.fit(512 << 20).Listen.MaxConnections; n >= without {
		t.Errorf("%d connections beside those for challenges, and %d without", n, without)
	}
	c.Listen.MaxConnections = 7
	if n := c.fit(512 << 20).Listen.MaxConnections; n != 7 {
		t.Errorf("%d connections, want the 7 that were asked for", n)
	}
}
