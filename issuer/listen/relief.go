package listen

import (
	"cmp"
	"context"
	"math"
	"runtime/metrics"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/admin"
)

const (
	// relieveEvery is how often memory is measured. At loopback speed attackers have made
	// some 4 MiB resident in that time (h2-own-400 on 1,000 connections that nobody closed).
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
		l.relieving.Lock()
		l.closeExpired(l.now())
		l.endTurns()
		l.unblock()
		l.thrift.end(l.now())
		m, closed := look(), 0
		if m.limit != math.MaxInt64 {
			closed = l.relieveOnce(m)
		}
		l.relieving.Unlock()
		if now := time.Now(); closed > 0 && now.Sub(logged) > time.Minute {
			l.log.Warn("memory is short, connections that hold most are closed; raise the memory limit or put a CDN in front",
				zap.Int64("live", m.live), zap.Int64("used", m.used), zap.Int64("limit", m.limit), zap.Int("open", l.open()))
			logged = now
		}
	}
}

// mostHeld is the most that they may hold where there is plenty: what strangers make
// the process take must not grow with the machine. With the garbage of it and a
// thousand connections it is less than 128 MiB. It is 1,000 answers that wait for
// their clients.
const mostHeld = 24 << 20

// forConnections is the part of a memory limit that may be held by connections that
// hold more than any connection does.
func forConnections(limit int64) int64 { return min(max(limit-ownMemory, limit/4)/2, mostHeld) }

// much is how many bytes in use, garbage included, make it worth a look at what
// connections hold.
func much(limit int64) int64 { return min(limit/2, ownMemory+mostHeld) }

const (
	// thriftyPercent is how much the heap may grow between two garbage collections
	// while connections hold much: what an attack has left behind is as large as what
	// it holds. With 100 four attacks of test/attack took up to 180 MiB over idle, with
	// 25 they take 80 to 109; with 50 one of them took 157.
	thriftyPercent = 25
	usualPercent   = 100 // Go's own
	// calm is how long they must hold little before that ends.
	calm = 2 * time.Second
)

// thrift has the garbage collected more often while connections hold much.
type thrift struct {
	set  func(percent int) int // debug.SetGCPercent; nil where GOGC says what is wanted
	on   bool
	last time.Duration // when they held much
}

func (t *thrift) begin(now time.Duration) {
	t.last = now
	if !t.on && t.set != nil {
		t.on = true
		t.set(thriftyPercent)
	}
}

func (t *thrift) end(now time.Duration) {
	if t.on && now-t.last > calm {
		t.on = false
		t.set(usualPercent)
	}
}

const (
	// stalledSoon is stalledAfter while many answers wait. An honest client makes none
	// wait: a document fits into what it is ready to take before it asks.
	stalledSoon = 500 * time.Millisecond
	// fewBeside is how many times as many answers another has to let wait, so that a client is spared. Without it 3 to 6 of 167 honest
	// requests failed in two of four runs of h2-unread-refusals on 500 connections.
	fewBeside = 4
	// hidingSoon is how long a connection may let the server wait while many answers are hidden, and none is known of any connection. With
	// 100 ms 2 to 12 of 167 honest requests failed under h2-own-400-reset and -behind on 1,000 connections, with 250 ms 0 or 1.
	hidingSoon = 250 * time.Millisecond
	// ownGoroutines is more than the process has without connections of this listener, some 30:
	// those of the admin listener are among them, and of the one for challenges.
	ownGoroutines = 60 + admin.MaxConnections + MaxChallengers
	// moreForHTTP2 is how many an HTTP/2 connection without requests has beside the one
	// that every connection has.
	moreForHTTP2 = 2
)

// unblock closes connections whose clients do not take their answers, while too many
// answers wait: those would be refused that others need. The client that lets them
// wait for longest goes first.
//
// net/http answers some HTTP/2 requests by itself, with 400 or 431, and tells nobody:
// h2-own-400 and h2-own-431 have taken 450 MiB. That there are such answers shows in
// the number of goroutines, since each that waits is one. Whose they are is guessed by
// what was written (conn.hides).
func (l *listener) unblock() {
	if unanswered := l.unanswered.Load(); unanswered > l.mostUnanswered*3/4 {
		l.closeStalled(unanswered - l.mostUnanswered/2)
	}
	if hidden := l.hidden(); hidden > l.mostUnanswered/4 {
		l.closeHiding(hidden - l.mostUnanswered/8)
	}
}

// hidden is how many answers of net/http's own wait, or a few less. Those of connections that have been closed for them
// are on their way: counted again and again, they would make others go. A handshake takes a goroutine more, and a connection
// has its own until it has ended, not only until it is closed: when those counted, a thousand handshakes or evictions
// had honest clients closed (h1-stall) or wait (h2-continuation-flood). It takes no lock: each read of an HTTP/2 connection asks.
func (l *listener) hidden() int64 {
	return int64(l.goroutines()) - ownGoroutines - l.alive.Load() - l.handshaking.Load() - moreForHTTP2*l.http2.Load() - l.answering.Load() - l.leaving.Load()
}

// pressed reports whether so many answers wait that no more should be begun.
func (l *listener) pressed() bool {
	return l.unanswered.Load() >= l.mostUnanswered || l.hidden() > l.mostUnanswered/4
}

// closeStalled closes connections until so many answers wait no longer. Those go first that let most wait, and for longest, and those
// are spared that let few wait beside others: on a busy machine an answer or two of an honest client wait, too.
func (l *listener) closeStalled(answers int64) {
	now := l.now()
	var found []load
	var most int64
	for _, c := range l.all() {
		s, waiting := c.status.Load(), c.unanswered.Load()
		if p, _ := read(s); p == active && waiting > 0 {
			if waited := c.patience.waited(now); waited > stalledSoon {
				found, most = append(found, load{victim{conn: c, status: s, age: waited}, waiting}), max(most, waiting)
			}
		}
	}
	slices.SortFunc(found, func(a, b load) int { return cmp.Compare(b.weight*int64(b.age), a.weight*int64(a.age)) })
	for _, v := range found {
		if answers <= 0 {
			return
		}
		if v.weight*fewBeside > most && l.close(v.victim, "stalled") {
			answers -= v.weight
		}
	}
}

// closeHiding closes connections that have so many answers that net/http gives by itself. Those go first that have most, as far as is
// known, and of these the ones that have let the server wait for longest. Of whom nothing is known go only when there are no
// others. How many answers a client has had says nothing: a stranger may ask for many, and an honest client
// that has just come would go before all strangers.
func (l *listener) closeHiding(answers int64) {
	now := l.now()
	found := l.hiding(now, (*conn).hides)
	if len(found) == 0 {
		found = l.hiding(now, (*conn).mayHide)
	}
	if len(found) > 0 {
		l.thrift.begin(now)
	}
	for _, v := range found {
		// Those that hide fewer by far are spared: what is left is for the next look, in milliseconds.
		if answers <= 0 || v.weight <= found[0].weight*3/4 {
			return
		}
		v.hiding.Store(v.weight) // before it ends
		l.leaving.Add(v.weight)
		if l.close(v.victim, "heavy") {
			answers -= v.weight
		} else {
			l.leaving.Add(-v.hiding.Swap(0))
		}
	}
}

// hiding returns the active HTTP/2 connections that hide answers by some measure, in the order of closeHiding.
func (l *listener) hiding(now time.Duration, measure func(*conn, time.Duration) int64) (found []load) {
	for _, c := range l.all() {
		s := c.status.Load()
		if p, _ := read(s); p != active || !c.http2.Load() {
			continue
		}
		if n := measure(c, now); n > 0 {
			found = append(found, load{victim{conn: c, status: s, age: c.patience.waited(now)}, n})
		}
	}
	slices.SortFunc(found, func(a, b load) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.age, a.age)) })
	return found
}

// closeExpired closes connections that have been idle for too long.
func (l *listener) closeExpired(now time.Duration) {
	if now-l.expired < l.idle/16 {
		return
	}
	l.expired = now
	for _, c := range l.all() {
		s := c.status.Load()
		if p, since := read(s); p == idle && now-since > l.idle {
			victim{conn: c, status: s}.end()
		}
	}
}

// relieveOnce returns how many connections it has closed.
func (l *listener) relieveOnce(m memory) int {
	switch budget := forConnections(m.limit); {
	case float64(m.live) > tooFull*float64(m.limit):
		loads, sum := l.loads((*conn).weight, ordinary)
		if len(loads) == 0 {
			return l.closeIdle()
		}
		return l.lighten(loads, sum/4)
	case m.used > much(m.limit):
		loads, sum := l.loads((*conn).holds, ordinaryHeld)
		if sum > budget*3/4 {
			l.thrift.begin(l.now())
		}
		return l.lighten(loads, sum-budget*3/4)
	}
	return 0
}

// load is a connection that takes more than an ordinary one.
type load struct {
	victim
	weight int64
}

// loads returns those that take more than is ordinary, and the sum over all connections.
// Those come first that take much and get little done.
func (l *listener) loads(measure func(*conn) int64, ordinary int64) ([]load, int64) {
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
	byAnswers(found)
	return found, sum
}

// byAnswers sorts those first that take much and get little done.
func byAnswers(all []load) {
	perAnswer := func(l load) int64 {
		return l.weight / (1 + l.requests.Load() - l.unanswered.Load() - l.refused.Load())
	}
	slices.SortFunc(all, func(a, b load) int { return cmp.Or(cmp.Compare(perAnswer(b), perAnswer(a)), cmp.Compare(b.age, a.age)) })
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
