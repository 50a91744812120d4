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
	// relieveEvery is how often memory is measured. At loopback speed attackers fill
	// some 20 MiB in that time.
	relieveEvery = 25 * time.Millisecond
	// tooFull is the part of the memory limit that may be live. The garbage
	// collector needs the rest to keep up; without it the process first stands still
	// and is then killed.
	tooFull = 0.7
	// idleAtOnce is how many idle connections are closed at a time: how much that
	// helps shows only after the next garbage collection.
	idleAtOnce = 16
)

// memory is how many bytes are used, garbage included, how many of them were live
// at the last garbage collection, and the limit.
type memory struct{ used, live, limit int64 }

// goMemory returns a function that reads the Go runtime's figures. The limit is GOMEMLIMIT.
func goMemory() func() memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/gomemlimit:bytes"},
	}
	value := func(i int) int64 { return int64(min(samples[i].Value.Uint64(), math.MaxInt64)) }
	return func() memory {
		metrics.Read(samples)
		return memory{used: value(0) + value(2), live: value(1) + value(2), limit: value(3)}
	}
}

// relieve closes connections while memory is short, until ctx is done. The bounds of
// a single connection have to be generous, so all connections together can take more
// than there is. Then those that hold most are closed; otherwise the kernel kills the
// process and with it all of them.
//
// Memory is short when much is used and all connections together hold three
// quarters of what they may, which is known at once, or when too much is
// live, which is known after the next garbage collection.
func (l *listener) relieve(ctx context.Context, look func() memory) {
	tick := time.NewTicker(relieveEvery)
	defer tick.Stop()
	var logged time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.open() == 0 { // there is nothing to close
			continue
		}
		m := look()
		if m.limit == math.MaxInt64 {
			continue
		}
		closed := l.relieveOnce(m)
		if now := time.Now(); closed > 0 && now.Sub(logged) > time.Minute {
			l.log.Warn("memory is short, connections that hold most are closed; raise the memory limit or put a CDN in front",
				zap.Int64("live", m.live), zap.Int64("used", m.used), zap.Int64("limit", m.limit), zap.Int("open", l.open()))
			logged = now
		}
	}
}

// forConnections is the part of a memory limit that may be held by connections that
// hold more than any connection does.
func forConnections(limit int64) int64 { return max(limit-ownMemory, limit/4) / 2 }

// relieveOnce returns how many connections it has closed.
func (l *listener) relieveOnce(m memory) int {
	switch budget := forConnections(m.limit); {
	case float64(m.live) > tooFull*float64(m.limit):
		loads, sum := l.loads((*conn).weight)
		if len(loads) == 0 {
			return l.closeIdle()
		}
		return l.lighten(loads, sum/4)
	case m.used > m.limit/2:
		loads, sum := l.loads((*conn).holds)
		return l.lighten(loads, sum-budget*3/4)
	}
	return 0
}

// load is a connection that takes more than an ordinary one.
type load struct {
	victim
	weight int64
}

// loads returns them and the sum over all connections. Those come first that take
// much and get little done.
func (l *listener) loads(measure func(*conn) int64) ([]load, int64) {
	var found []load
	var sum int64
	for _, c := range l.all() {
		s := c.status.Load()
		w := measure(c)
		sum += w
		if w > ordinary {
			found = append(found, load{victim{conn: c, status: s}, w})
		}
	}
	perAnswer := func(l load) int64 { return l.weight / (1 + l.requests.Load() - l.unanswered.Load()) }
	slices.SortFunc(found, func(a, b load) int { return cmp.Compare(perAnswer(b), perAnswer(a)) })
	return found, sum
}

// lighten closes the heaviest connections until they have held as much as given.
func (l *listener) lighten(loads []load, much int64) int {
	closed := 0
	for _, v := range loads {
		if much <= 0 {
			break
		}
		if l.close(v.victim, "heavy") {
			closed++
			much -= v.weight
		}
	}
	return closed
}

// closeIdle closes those that have been idle for longest.
func (l *listener) closeIdle() int {
	closed := 0
	for _, v := range l.evictable(l.now()) {
		if p, _ := read(v.status); p == idle && l.close(v, "heavy") {
			closed++
		}
		if closed == idleAtOnce {
			break
		}
	}
	return closed
}
