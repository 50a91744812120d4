package listen

import (
	"cmp"
	"context"
	"math"
	"runtime/metrics"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// relieveEvery is how often memory is looked at. At loopback speed an
	// attacker fills some 30 MiB in that time.
	relieveEvery = 50 * time.Millisecond
	// tooFull is the part of the memory limit that may be live before
	// connections are closed. The rest is what the garbage collector needs to
	// keep up; without it the process stands still first and is killed then.
	tooFull = 0.7
	// idleAtOnce is how many idle connections are closed at a time, while it is
	// not known how much that helps.
	idleAtOnce = 16
)

// memory tells how many bytes are live and how many there may be.
type memory func() (live, limit uint64)

// goMemory is that of the Go runtime, whose limit is GOMEMLIMIT.
func goMemory() memory {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/gomemlimit:bytes"}}
	return func() (live, limit uint64) {
		metrics.Read(samples)
		return samples[0].Value.Uint64() + samples[1].Value.Uint64(), samples[2].Value.Uint64()
	}
}

// relieve closes connections while memory is short, until ctx is done. Every bound
// of a single connection has to be generous, so that all of them together can take
// more than there is. Then those that hold most have to go, or the kernel ends the
// process and with it all of them.
func (l *listener) relieve(ctx context.Context, m memory) {
	tick := time.NewTicker(relieveEvery)
	defer tick.Stop()
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		live, limit := m()
		if limit >= math.MaxInt64 || float64(live) <= tooFull*float64(limit) {
			continue
		}
		closed := l.lighten()
		if now := time.Now(); closed > 0 && now.Sub(told) > time.Minute {
			l.log.Warn("memory is short, connections that hold most are closed; raise the memory limit or put a CDN in front",
				zap.Uint64("live", live), zap.Uint64("limit", limit), zap.Int("open", l.open()))
			told = now
		}
	}
}

// lighten closes half of the heavy connections, the heaviest first, or, where there
// are none, some that are idle. It returns how many.
func (l *listener) lighten() int {
	type load struct {
		victim
		weight uint64
	}
	var loads []load
	for _, c := range l.all() {
		s := c.status.Load()
		if p, _ := read(s); p == idle {
			continue
		}
		if w := c.weight(); w > heavy {
			loads = append(loads, load{victim{c, s}, w})
		}
	}
	slices.SortFunc(loads, func(a, b load) int { return cmp.Compare(b.weight, a.weight) })
	closed := 0
	for _, v := range loads[:(len(loads)+1)/2] {
		if l.close(v.victim) {
			closed++
		}
	}
	if len(loads) > 0 {
		return closed
	}
	return l.closeIdle()
}

// closeIdle closes those that have been idle for longest.
func (l *listener) closeIdle() int {
	closed := 0
	for _, v := range l.evictable(l.now()) {
		if p, _ := read(v.status); p == idle && l.close(v) {
			closed++
		}
		if closed == idleAtOnce {
			break
		}
	}
	return closed
}
