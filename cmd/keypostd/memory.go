package main

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/keypost/keypost/issuer/listen"
)

// memoryShare is the part of the memory that the Go runtime may take. The rest is for what it does not count: the
// kernel's socket buffers, the program itself, and the moment in which the garbage collector is late.
const memoryShare = 0.75

// limitMemory sets the Go runtime's soft memory limit to what this process's cgroup or the machine has, and returns it.
// Without a limit the heap grows to a multiple of what is live, and any stranger could make the kernel end the process.
// GOMEMLIMIT wins when it is set.
func limitMemory() (int64, error) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(least(memlimit.FromCgroup, memlimit.FromSystem)))
	if err != nil {
		return math.MaxInt64, fmt.Errorf("find out how much memory there is: %w; set GOMEMLIMIT", err)
	}
	return limit, nil
}

// least returns a provider of the smallest of several limits. One that does not exist, such as a cgroup without a
// limit, is passed over.
func least(limits ...memlimit.Provider) memlimit.Provider {
	return func() (uint64, error) {
		smallest, found := uint64(math.MaxUint64), false
		var errs []error
		for _, ask := range limits {
			n, err := ask()
			if err != nil {
				errs = append(errs, err)
				continue
			}
			smallest, found = min(smallest, n), true
		}
		if !found {
			return 0, errors.Join(errs...)
		}
		return smallest, nil
	}
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
