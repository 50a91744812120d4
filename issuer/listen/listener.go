package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/bind"
)

const (
	// slowAfter is how long a TLS handshake, a first request's header or an answer may take
	// before the connection may be evicted. An honest client needs a few round trips.
	slowAfter = 2 * time.Second
	// silentAfter is as slowAfter for a connection from which nothing has come at all.
	// A client speaks first, with the packet that completes the connection or the next
	// one. It bounds for how long strangers who only connect keep slots: tcp-idle with
	// six times as many as there are slots.
	silentAfter = 300 * time.Millisecond
	// idleAfter protects a connection that has just become idle: its next request
	// may be on its way. While there is nobody else, one
	// of those goes all the same, and not the one that has been
	// idle for longest: honest clients ask less often than strangers who mean to stay.
	idleAfter = 250 * time.Millisecond
	// lookAgain is the pause between searches for a connection to evict.
	lookAgain = 50 * time.Millisecond
)

// listener is a TCP listener with a bounded number of connections. When all are
// taken, one makes room for the next: the one whose TLS handshake or first request
// has been outstanding longest, if for more than slowAfter, or silentAfter while
// nothing has come; else the one that has been idle for longest; else the one whose request has been under way for longest, if for
// more than slowAfter: documents are in memory, so that it is the client that takes no answer or sends no body; else any that is
// idle. While all are busy, new ones wait in the kernel's queue.
type listener struct {
	*net.TCPListener
	tls     *tls.Config // nil: plain HTTP
	limits  limits
	log     *zap.Logger
	errors  *errorLog
	slots   chan struct{} // one per connection, and one for the Accept under way
	began   time.Time     // what a connection's status counts from
	closing sync.Once
	closed  chan struct{}

	mu    sync.Mutex // not taken while requests are served
	conns map[*conn]struct{}

	exhausted time.Time // when Accept last ran out of file descriptors; of Accept only

	evictions *prometheus.CounterVec
	failures  prometheus.Counter
}

// victim is a connection that may be evicted while its status is this one.
type victim struct {
	*conn
	status int64
	kind   string
	quiet  bool          // nothing has come that it waits to answer
	rank   int           // lower ranks go first
	age    time.Duration // of one rank the oldest goes first
}

// newListener binds the address of c, which has its defaults filled in, with room for its connections.
func newListener(ctx context.Context, c Config, log *errorLog) (*listener, error) {
	ln, err := bind.TCP(ctx, c.Address)
	if err != nil {
		return nil, err
	}
	l := &listener{
		TCPListener: ln,
		tls:         c.tls(),
		limits:      c.limits,
		log:         c.Log,
		errors:      log,
		slots:       make(chan struct{}, c.MaxConnections),
		began:       time.Now(),
		closed:      make(chan struct{}),
		conns:       map[*conn]struct{}{},
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keypost_connections_evicted_total",
			Help: "Connections closed to make room, by what they were: slow (handshake or header outstanding), idle, or stalled (the client does not take its answer).",
		}, []string{"kind"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "keypost_connections_failed_total",
			Help: "Connections that could not be accepted because file descriptors or kernel memory ran out.",
		}),
	}
	for _, kind := range []string{"slow", "idle", "stalled"} { // a rate needs the zero before the first one
		l.evictions.WithLabelValues(kind)
	}
	return l, nil
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
		t, err := l.AcceptTCP()
		if err == nil {
			return l.admit(t), nil
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
		l.evict()
		select {
		case l.slots <- struct{}{}:
			return nil
		case <-l.closed:
			return net.ErrClosed
		case <-time.After(lookAgain):
		}
	}
}

func (l *listener) admit(t *net.TCPConn) net.Conn {
	c := &conn{TCPConn: t, of: l, greeted: l.tls == nil}
	c.enter(fresh)
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	if l.tls == nil {
		return &session{duplex: c, conn: c}
	}
	secure := tls.Server(c, l.tls)
	return tlsSession{&session{duplex: secure, conn: c}, secure}
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

// evict closes one connection, if there is one to close. Its goroutine gives the slot back.
func (l *listener) evict() {
	for {
		v, found := l.next(l.now())
		if !found {
			return
		}
		if v.quiet && bind.Unread(v.TCPConn) { // its request is here, and waits for the processor
			v.conn.status.CompareAndSwap(v.status, status(active, l.now()))
			continue
		}
		if v.conn.status.CompareAndSwap(v.status, status(evicted, 0)) {
			_ = v.TCPConn.Close() // the client may have closed it, too
			l.evictions.WithLabelValues(v.kind).Inc()
			return
		}
	}
}

// next returns the connection that makes room next, if one may.
func (l *listener) next(now time.Duration) (first victim, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		v, may := c.judge(now)
		if may && (!found || v.rank < first.rank || v.rank == first.rank && v.age > first.age) {
			first, found = v, true
		}
	}
	return first, found
}

// judge reports whether c may have to make room, and its place in the order.
func (c *conn) judge(now time.Duration) (victim, bool) {
	s := c.status.Load()
	p, since := read(s)
	age, silent := now-since, c.received.Load() == 0
	switch {
	case p == fresh:
		return victim{c, s, "slow", silent, 0, age}, age > slowAfter || silent && age > silentAfter
	case p == idle && age > idleAfter:
		return victim{c, s, "idle", true, 1, age}, true
	case p == active:
		return victim{c, s, "stalled", false, 2, age}, age > slowAfter
	case p == idle:
		return victim{c, s, "idle", true, 3, rand.N(idleAfter)}, true //nolint:gosec // nobody gains by guessing it
	}
	return victim{}, false
}

// isExhaustion reports whether the system does not have what a connection needs.
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
		l.evictions, l.failures,
	}
}
