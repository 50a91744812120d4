package attack

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A server whose slots are all taken by strangers answers all the same.
func TestHonestWhileAllSlotsAreTaken(t *testing.T) {
	// Those that hold a connection without work for the server; nothing else tells them apart from honest clients. TestTable has more.
	modes := []string{"tcp-idle", "h1-idle", "h1-slow-header", "h1-stall"}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			// An honest connection that says nothing yet, since this machine is busy, looks like a stranger's. That passes; a server that
			// does not tell them apart fails somebody each time.
			p := &party{}
			for range 3 {
				if p = relyWhileTaken(t, mode); p.failed == 0 {
					break
				}
			}
			if p.failed > 0 || p.asked == 0 {
				t.Errorf("%d of %d failed: %v", p.failed, p.asked, p.first)
			}
		})
	}
}

// relyWhileTaken asks a server whose slots are all taken.
func relyWhileTaken(t *testing.T, mode string) *party {
	t.Helper()
	v := start(t, setup{listen: "maxConnections: 500"})
	end := startAttack(t, mode, v.address, 600, time.Minute) // until everybody is answered or has given up
	v.Await(t, "490 connections, and one that had to go: else the attack is too weak to prove anything", func() error {
		if n, evicted := v.metric(t, "keypost_connections_open"), v.metric(t, "keypost_connections_evicted_total"); n <= 490 || evicted == 0 {
			return fmt.Errorf("%v, %v evicted", n, evicted)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	p := rely(ctx, v)
	t.Logf("%d asked, %d failed, p99 %v; %v evicted, %d attackers", p.asked, p.failed, p.quantile(0.99), v.metric(t, "keypost_connections_evicted_total"), end())
	return p
}

// What is live stays within the memory limit under each attack, at a limit that a few connections used to exceed.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 64 << 20
	for _, mode := range []string{"h1-header-bomb", "h1-large-header", "h1-pipeline", "h1-stall"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{env: []string{"GOMEMLIMIT=64MiB"}})
			end := startAttack(t, mode, v.address, 100, time.Minute)
			time.Sleep(1600 * time.Millisecond)
			peak := v.peakResident(t)
			t.Logf("%.0f MiB resident at most, %d attackers, %v evicted", peak/(1<<20), end(), v.metric(t, "keypost_connections_evicted_total"))
			if peak > 1.5*limit {
				t.Errorf("%.0f MiB are resident with a limit of %d", peak/(1<<20), limit>>20)
			}
		})
	}
}

// A server that runs out of file descriptors goes on with those it has, and says so once.
func TestFileDescriptorsRunOut(t *testing.T) {
	v := start(t, setup{within: []string{"sh", "-c", `ulimit -n 64 && exec "$@"`, "sh"}})
	// Most attackers wait in the kernel's queue, and honest clients behind them until the attack ends.
	end := startAttack(t, "tcp-idle", v.address, 200, 3500*time.Millisecond)
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	p := rely(ctx, v)
	lacked := v.metric(t, "keypost_connections_failed_total")
	lines := strings.Count(v.Output.String(), "cannot be accepted")
	t.Logf("%d asked, %d failed, p99 %v; ran out of file descriptors %v times, %d lines, %d attackers", p.asked, p.failed, p.quantile(0.99), lacked, lines, end())
	if lacked == 0 || lines != 1 || strings.Contains(v.Output.String(), "reports trouble") {
		t.Errorf("%d lines tell of %v failures, want one:\n%s", lines, lacked, v.Output)
	}
	if len(p.times) == 0 {
		t.Errorf("nobody was answered: %v", p.first)
	}
}
