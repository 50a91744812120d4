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
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(available))
	if err != nil {
		return math.MaxInt64, fmt.Errorf("find out how much memory there is: %w; set GOMEMLIMIT", err)
	}
	return limit, nil
}

// available is the smaller one of the cgroup's limit and the machine's memory.
func available() (uint64, error) {
	least, found := uint64(math.MaxUint64), false
	var errs []error
	for _, ask := range []memlimit.Provider{memlimit.FromCgroup, memlimit.FromSystem} {
		n, err := ask()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		least, found = min(least, n), true
	}
	if !found {
		return 0, errors.Join(errs...)
	}
	return least, nil
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
		c.Listen.MaxConnections = listen.FittingConnections(memory, openFiles())
	}
	return c
}
