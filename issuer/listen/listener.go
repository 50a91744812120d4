package listen

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/bind"
)

const (
	// slowAfter is how long a TLS handshake or a first request's header may take
	// before the connection may be evicted. An honest client needs a few round trips.
	slowAfter = 2 * time.Second
	// silentAfter is as slowAfter for a connection from which nothing has come at all.
	// A client speaks first, with the packet that completes the connection or the next
	// one. It bounds for how long strangers who only connect keep slots: tcp-idle with
	// six times as many as there are slots.
	silentAfter = 300 * time.Millisecond
	// idleAfter protects a connection that has just become idle: its next request,
	// or with HTTP/2 its first one, may be on its way. While there is nobody else, one
	// of those that have had an answer goes all the same, and not the one that has been
	// idle for longest: honest clients ask less often than strangers who mean to stay.
	idleAfter = 250 * time.Millisecond
	// lookAgain is the pause between searches for a connection to evict.
	lookAgain = 50 * time.Millisecond
	// atOnce is how many connections one search finds: among 10,000 it takes 1.6 ms,
	// which is too much for each new connection.
	atOnce = 64
)

// listener is a TCP listener with a bounded number of connections. When all are
// taken, one makes room for the next: the one whose TLS handshake or first request
// has been outstanding longest, if for more than slowAfter, or silentAfter while
// nothing has come; else the one that has been idle for longest; else the one that has
// waited longest for its client to take an answer or to send a body, if for more than
// stalledAfter; else any that has had an answer and is idle. A connection is never
// closed for that while the server works on its request, or while the client takes
// the answer. While all are like that, new ones wait in the kernel's queue.
type listener struct {
	*net.TCPListener
	log     *zap.Logger
	slots   chan struct{} // one per connection, and one for the Accept under way
	began   time.Time     // what a connection's status counts from
	idle    time.Duration // how long a connection may be idle; see newServer
	closing sync.Once
	closed  chan struct{}

	mu    sync.Mutex // not taken while requests are served
	conns map[*conn]struct{}

	// What all connections may hold together; see bound.
	unanswered     atomic.Int64 // requests whose answer has not been sent
	mostUnanswered int64
	alive          atomic.Int64  // connections that have not ended, though they may be closed
	handshaking    atomic.Int64  // of these: nothing has come after the handshake, or it is under way
	http2          atomic.Int64  // of these: with that protocol
	answering      atomic.Int64  // goroutines for requests: one for each of HTTP/2, and one for each connection of HTTP/1 that has one
	leaving        atomic.Int64  // answers of connections that were closed for them, and have not ended yet
	goroutines     func() int    // of the process
	bulky          chan struct{} // one per connection with a bulky header
	turns          chan struct{} // one per connection that acts on what it has read

	relieving sync.Mutex
	thrift    thrift        // with relieving held
	expired   time.Duration // when closeExpired last looked; with relieving held

	victims   []victim      // found by the last look; of Accept only
	looked    time.Duration // when that was; of Accept only
	exhausted time.Time     // when Accept last lacked file descriptors; of Accept only

	evictions *prometheus.CounterVec
	paced     prometheus.Counter
	refused   prometheus.Counter
	failures  prometheus.Counter
}

// victim is a connection that may be evicted while its status is this one.
type victim struct {
	*conn
	status int64
	rank   int           // lower ranks go first
	age    time.Duration // in its phase, or without progress; of one rank the oldest goes first
}

// newListener binds address with room for limit connections.
func newListener(ctx context.Context, address string, limit int, log *zap.Logger) (*listener, error) {
	ln, err := bind.TCP(ctx, address)
	if err != nil {
		return nil, err
	}
	l := &listener{
		TCPListener: ln,
		log:         log,
		slots:       make(chan struct{}, limit),
		began:       time.Now(),
		idle:        limits{}.withDefaults().idle,
		closed:      make(chan struct{}),
		conns:       map[*conn]struct{}{},
		turns:       make(chan struct{}, atATime),
		goroutines:  runtime.NumGoroutine,
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_connections_evicted_total",
			Help: "Connections closed to make room, by what they were: slow (handshake or header outstanding), idle, stalled (the client does not take its answer), or heavy while memory was short.",
		}, []string{"kind"}),
		paced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keypost_http2_reads_delayed_total",
			Help: "Reads from HTTP/2 connections that were delayed because the client sends much and asks little.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keypost_http2_requests_refused_total",
			Help: "HTTP/2 requests that were reset because too many answers wait for clients that do not take them, theirs among them.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keypost_connections_failed_total",
			Help: "Connections that could not be accepted for want of file descriptors or kernel memory.",
		}),
	}
	for _, kind := range []string{"slow", "idle", "stalled", "heavy"} { // a rate needs the zero before the first one
		l.evictions.WithLabelValues(kind)
	}
	l.bound(goMemory()().limit)
	if os.Getenv("GOGC") == "" {
		l.thrift.set = debug.SetGCPercent
	}
	return l, nil
}

// bound derives what all connections may hold together from a memory limit.
func (l *listener) bound(limit int64) {
	budget := forConnections(limit)
	l.mostUnanswered = budget / heldPerStream
	l.bulky = make(chan struct{}, min(max(budget/heaviestHeader, 4), mostConnections))
}

// beSecond is as Config.Second says. No answers are hidden in HTTP/1.
func (l *listener) beSecond() {
	l.thrift.set = nil
	l.goroutines = func() int { return 0 }
}

// now is on the monotonic clock.
func (l *listener) now() time.Duration { return time.Since(l.began) }

// Accept makes sure of a slot first, so that a connection beyond the limit costs
// this process nothing. http.Server calls it from one goroutine.
func (l *listener) Accept() (net.Conn, error) {
	if err := l.takeSlot(); err != nil {
		return nil, err
	}
	for {
		c, err := l.AcceptTCP()
		if err == nil {
			return l.admit(c), nil
		}
		if !isExhaustion(err) {
			<-l.slots
			return nil, err
		}
		l.makeRoomAfter(err)
	}
}

func (l *listener) takeSlot() error {
	for {
		select {
		case l.slots <- struct{}{}:
			return nil
		case <-l.closed:
			return net.ErrClosed
		default:
		}
		if l.evict() {
			continue
		}
		select {
		case l.slots <- struct{}{}:
			return nil
		case <-l.closed:
			return net.ErrClosed
		case <-time.After(lookAgain):
		}
	}
}

func (l *listener) admit(t *net.TCPConn) *conn {
	c := &conn{TCPConn: t, of: l, closed: make(chan struct{}), patience: newPatience(l.now())}
	c.enter(fresh)
	l.alive.Add(1)
	l.handshaking.Add(1)
	c.handshaking.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return c
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	<-l.slots
}

func (l *listener) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

func (l *listener) all() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	return all
}

// evict closes one connection and reports whether there was one to close. What an old search has found is forgotten: others may have
// to go before it now.
func (l *listener) evict() bool {
	now := l.now()
	if now-l.looked < lookAgain && l.evictNext() {
		return true
	}
	l.victims, l.looked = l.evictable(now), now
	return l.evictNext()
}

// evictNext closes one of those that the last search has found.
func (l *listener) evictNext() bool {
	for len(l.victims) > 0 {
		v := l.victims[0]
		l.victims = l.victims[1:]
		if v.still(l.now()) && l.close(v, v.kind()) {
			return true
		}
	}
	return false
}

// still reports whether v has done nothing since the search that is not in its status.
func (v victim) still(now time.Duration) bool {
	switch p, since := read(v.status); p {
	case fresh: // what has come may wait for the processor
		return now-since > slowAfter || v.received.Load() == 0 && !bind.Unread(v.TCPConn)
	case active:
		return v.patience.waited(now) > stalledAfter
	default:
		return true
	}
}

// kind names what makes it a victim when room is made.
func (v victim) kind() string {
	switch p, _ := read(v.status); p {
	case fresh:
		return "slow"
	case active:
		return "stalled"
	default:
		return "idle"
	}
}

// close closes v to make room, unless its status has changed.
func (l *listener) close(v victim, kind string) bool {
	if !v.end() {
		return false
	}
	l.evictions.WithLabelValues(kind).Inc()
	return true
}

// end closes v unless its status has changed, and reports whether it has.
func (v victim) end() bool {
	if !v.conn.status.CompareAndSwap(v.status, status(evicted, 0)) {
		return false
	}
	select {
	case <-v.closed: // it has ended by itself
		return false
	default:
	}
	_ = v.Close() // the client may have closed it, too
	return true
}

// judge reports whether c may have to make room, and returns its place in the order.
func (c *conn) judge(now time.Duration) (victim, bool) {
	s := c.status.Load()
	p, since := read(s)
	age := now - since
	switch p {
	case fresh:
		return victim{c, s, 0, age}, age > slowAfter || age > silentAfter && c.received.Load() == 0
	case idle:
		if age > idleAfter {
			return victim{c, s, 1, age}, true
		}
		return victim{c, s, 3, rand.N(idleAfter)}, c.requests.Load() > 0 //nolint:gosec // nobody gains by guessing it
	case active:
		waited := c.patience.waited(now)
		return victim{c, s, 2, waited}, waited > stalledAfter
	default:
		return victim{}, false
	}
}

// evictable returns the connections that make room, in that order, atOnce at most.
func (l *listener) evictable(now time.Duration) []victim {
	var found []victim
	for _, c := range l.all() {
		if v, ok := c.judge(now); ok {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.age, a.age))
	})
	return slices.Clone(found[:min(len(found), atOnce)])
}

// isExhaustion reports whether the system lacks what a connection needs.
func isExhaustion(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// makeRoomAfter logs once that connections cannot be accepted, until none has
// failed for a minute: clients can cause it, and must not fill the log.
func (l *listener) makeRoomAfter(err error) {
	l.failures.Inc()
	now := time.Now()
	if now.Sub(l.exhausted) > time.Minute {
		l.log.Warn("connections cannot be accepted, idle ones make room; raise the limit of open files or lower listen.maxConnections",
			zap.Int("open", l.open()), zap.Error(err))
	}
	l.exhausted = now
	l.evict()
	select {
	case <-l.closed: // then accepting fails otherwise
	case <-time.After(lookAgain):
	}
}

// Close closes the socket; connections that were accepted live on.
func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.TCPListener.Close()
}

func (l *listener) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	return []prometheus.Collector{
		gauge("keypost_connections_open", "Connections of the public listener that are open.", l.open),
		gauge("keypost_connections_max", "Open connections beyond which slow, idle and stalled ones make room for new ones.", func() int { return cap(l.slots) }),
		l.evictions, l.paced, l.refused, l.failures,
	}
}
