package main

import (
	"errors"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestSmaller(t *testing.T) {
	has := func(n uint64) memlimit.Provider { return func() (uint64, error) { return n, nil } }
	none := func() (uint64, error) { return 0, errors.New("no limit") }
	for name, tt := range map[string]struct {
		cgroup, machine memlimit.Provider
		want            uint64
	}{
		"the cgroup has less than the machine": {has(256 << 20), has(16 << 30), 256 << 20},
		"the machine has less":                 {has(64 << 30), has(16 << 30), 16 << 30},
		"no cgroup":                            {none, has(16 << 30), 16 << 30},
		"nothing is known":                     {none, none, 0},
	} {
		if got, err := smaller(tt.cgroup, tt.machine)(); got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tt.want)
		}
	}
}

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
