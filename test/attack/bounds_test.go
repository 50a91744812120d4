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
	// Those that hold a connection without work for the server; nothing else tells them apart from honest clients.
	modes := []string{"tcp-idle", "h1-busy", "h1-idle", "h2-idle", "h1-slow-header", "h1-header-bomb", "h2-stall", "h2-drip", "h1-stall", "h1-drip", "h1-slow-body"}
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
	v.Await(t, "490 connections", func() error {
		if n := v.metric(t, "keypost_connections_open"); n <= 490 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	p := rely(ctx, v)
	evicted := v.metric(t, "keypost_connections_evicted_total")
	t.Logf("%d asked, %d failed, p99 %v; %v evicted, %d attackers", p.asked, p.failed, p.quantile(0.99), evicted, end())
	if evicted == 0 {
		t.Error("the slots were never taken: the attack is too weak to prove anything")
	}
	return p
}

// What is live stays within the memory limit under each attack, at a limit that a few connections used to exceed.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 64 << 20
	for _, mode := range []string{"h2-load", "h2-cookie-crumbs", "h2-unread-refusals", "h2-window-drip", "h2-own-400", "h2-own-431", "h1-header-bomb"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{env: []string{"GOMEMLIMIT=64MiB"}})
			end := startAttack(t, mode, v.address, 100, time.Minute)
			time.Sleep(1600 * time.Millisecond)
			peak := v.peakResident(t)
			t.Logf("%.0f MiB resident at most, %d attackers, %v heavy ones evicted", peak/(1<<20), end(), v.metric(t, "keypost_connections_evicted_total"))
			if peak > 1.5*limit {
				t.Errorf("%.0f MiB are resident with a limit of %d", peak/(1<<20), limit>>20)
			}
		})
	}
}

// Headers that are each too small for any bound of a connection hold more than all connections together may. Then those
// that hold most are closed.
func TestMemoryIsRelieved(t *testing.T) {
	v := start(t, setup{listen: "maxConnections: 1000", env: []string{"GOMEMLIMIT=64MiB"}})
	end := startAttack(t, "h1-small-bomb", v.address, 900, time.Minute)
	var heavy float64
	for began := time.Now(); heavy == 0 && time.Since(began) < 30*time.Second; time.Sleep(time.Second) { // a busy machine attacks slowly
		heavy = v.metric(t, `keypost_connections_evicted_total{kind="heavy"}`)
	}
	t.Logf("%.0f MiB resident at most, %d attackers, %v heavy ones evicted", v.peakResident(t)/(1<<20), end(), heavy)
	if heavy == 0 {
		t.Error("nobody had to go: the attack is too weak, or memory is not relieved")
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
	t.Logf("%d asked, %d failed, p99 %v; lacked file descriptors %v times, %d lines, %d attackers", p.asked, p.failed, p.quantile(0.99), lacked, lines, end())
	if lacked == 0 || lines != 1 || strings.Contains(v.Output.String(), "reports trouble") {
		t.Errorf("%d lines tell of %v failures, want one:\n%s", lines, lacked, v.Output)
	}
	if len(p.times) == 0 {
		t.Errorf("nobody was answered: %v", p.first)
	}
}

// floodFor is long enough for a server that does not slow down to use a core all the time.
const floodFor = 1000 * time.Millisecond

// A flood of frames is read slowly, whatever kind they are of.
func TestFloodsAreReadSlowly(t *testing.T) {
	for _, mode := range []string{"h2-settings-flood", "h2-ping-flood", "h2-priority-flood", "h2-unknown-flood", "h2-window-flood"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{})
			before := v.metric(t, "process_cpu_seconds_total")
			end := startAttack(t, mode, v.address, 20, time.Minute)
			time.Sleep(floodFor)
			end()
			cpu, delays := v.metric(t, "process_cpu_seconds_total")-before, v.metric(t, "keypost_http2_reads_delayed_total")
			t.Logf("%.2f s of CPU in %v, %v reads delayed", cpu, floodFor, delays)
			if delays == 0 || cpu > floodFor.Seconds()/2 {
				t.Errorf("%.2f s of CPU, %v reads delayed", cpu, delays)
			}
		})
	}
}
