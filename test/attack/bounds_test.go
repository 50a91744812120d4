package attack

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A server whose slots are all taken by strangers answers all the same.
func TestHonestWhileAllSlotsAreTaken(t *testing.T) {
	for _, mode := range []string{"tcp-idle", "h1-idle", "h2-idle", "h1-slow-header", "h1-header-bomb"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{listen: "maxConnections: 500"})
			wait := startAttack(t, mode, v.address, 600, 7*time.Second) // longer than a client waits
			time.Sleep(time.Second)                                     // until the slots are taken
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
			p := rely(ctx, v)
			evicted := v.metric(t, "keypost_connections_evicted_total")
			t.Logf("%d asked, %d failed, p99 %v; %v evicted, %d attackers", p.asked, p.failed, p.quantile(0.99), evicted, wait())
			if p.failed > 0 || p.asked == 0 {
				t.Errorf("%d of %d failed: %v", p.failed, p.asked, p.first)
			}
			if evicted == 0 {
				t.Error("the slots were never taken: the attack is too weak to prove anything")
			}
		})
	}
}

// What is live stays within the memory limit under each attack, at a limit that a few connections used to exceed.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 64 << 20
	for _, mode := range []string{"h2-load", "h2-cookie-crumbs", "h2-unread-refusals", "h2-window-drip", "h1-header-bomb"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{env: []string{"GOMEMLIMIT=64MiB"}})
			wait := startAttack(t, mode, v.address, 100, 3*time.Second)
			peak := 0.0
			for range 10 {
				time.Sleep(250 * time.Millisecond)
				peak = max(peak, v.metric(t, "process_resident_memory_bytes"))
			}
			t.Logf("%.0f MiB resident at most, %d attackers, %v heavy ones evicted", peak/(1<<20), wait(), v.metric(t, "keypost_connections_evicted_total"))
			if peak > 1.5*limit {
				t.Errorf("%.0f MiB are resident with a limit of %d", peak/(1<<20), limit>>20)
			}
		})
	}
}

// A server that runs out of file descriptors goes on with those it has, and says so once.
func TestFileDescriptorsRunOut(t *testing.T) {
	v := start(t, setup{within: []string{"sh", "-c", `ulimit -n 64 && exec "$@"`, "sh"}})
	wait := startAttack(t, "tcp-idle", v.address, 200, 6*time.Second)
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	p := rely(ctx, v)
	lacked := v.metric(t, "keypost_connections_failed_total")
	lines := strings.Count(v.said.String(), "cannot be accepted")
	t.Logf("%d asked, %d failed, p99 %v; lacked file descriptors %v times, %d lines, %d attackers", p.asked, p.failed, p.quantile(0.99), lacked, lines, wait())
	if lacked == 0 || lines != 1 || strings.Contains(v.said.String(), "reports trouble") {
		t.Errorf("%d lines tell of %v failures, want one:\n%s", lines, lacked, v.said)
	}
	if len(p.times) == 0 {
		t.Errorf("nobody was answered: %v", p.first)
	}
}

// A flood of frames is read slowly, whatever kind they are of.
func TestFloodsAreReadSlowly(t *testing.T) {
	for _, mode := range []string{"h2-settings-flood", "h2-ping-flood", "h2-priority-flood", "h2-unknown-flood", "h2-window-flood"} {
		t.Run(mode, func(t *testing.T) {
			v := start(t, setup{})
			before := v.metric(t, "process_cpu_seconds_total")
			startAttack(t, mode, v.address, 20, 2*time.Second)()
			cpu, delays := v.metric(t, "process_cpu_seconds_total")-before, v.metric(t, "keypost_http2_reads_delayed_total")
			t.Logf("%.2f s of CPU in 2 s, %v reads delayed", cpu, delays)
			if delays == 0 || cpu > 1 {
				t.Errorf("%.2f s of CPU, %v reads delayed", cpu, delays)
			}
		})
	}
}
