package main

import (
	"fmt"
	"math"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/keypost/keypost/issuer/listen"
)

// memoryShare is the part of the memory that the Go runtime may take. The rest is for what it does not count: the
// kernel's socket buffers, the program itself, and the moment in which the garbage collector is late.
const memoryShare = 0.75

// limitMemory sets the Go runtime's soft memory limit to what this process's cgroup has, or else the machine, and returns it.
// Without a limit the heap grows to a multiple of what is live, and any stranger could make the kernel end the process.
// GOMEMLIMIT wins when it is set.
func limitMemory() (int64, error) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		return math.MaxInt64, fmt.Errorf("find out how much memory there is: %w; set GOMEMLIMIT", err)
	}
	return limit, nil
}

// openFiles is how many files this process may have open.
func openFiles() uint64 {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return math.MaxUint64
	}
	return r.Cur
}

// fit fills in what depends on the machine.
func (c config) fit(memory int64) config {
	if c.Listen.MaxConnections == 0 {
		others := uint16(0)
		if a := c.Listen.TLS.ACME; a != nil && a.HTTPAddress != "" {
			others = listen.MaxChallengers
		}
		c.Listen.MaxConnections = listen.FittingConnections(memory, openFiles(), others)
	}
	return c
}
