package listen

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection of a listener. It stays a TCP connection, of which net/http
// closes only the write half after refusing a request (otherwise the reset that
// follows could overtake the 431 or 400).
//
// It bounds what its client can make the server hold in two ways. It reads
// nothing while an answer is being written, so that a client that does not take
// its answers cannot queue more of them. And it reads slowly from an HTTP/2
// client that sends much and asks little, which is how floods of control frames
// and of refused requests look.
type conn struct {
	*net.TCPConn
	of *listener

	status   atomic.Int64  // see phase
	requests atomic.Uint64 // that have reached the handler
	received atomic.Uint64 // bytes, those of TLS too
	http2    atomic.Bool

	writing sync.Mutex // held while a write is under way

	// What the reader, of which there is one at a time, has counted.
	debt     int    // bytes received beyond what the requests account for
	credited uint64 // requests that are accounted for

	idleRequests, idleReceived atomic.Uint64 // the counts when it was last idle

	closing sync.Once
	closed  chan struct{}
}

// phase is what a connection is doing. Its status holds the phase and since when,
// in one word, so that whoever evicts it can be sure that nothing has changed.
type phase int64

const (
	fresh phase = iota // no request has been read yet: handshake or first header
	active
	idle
	evicted
	phases // how many there are
)

func status(p phase, since time.Duration) int64 { return int64(since)*int64(phases) + int64(p) }

func read(status int64) (phase, time.Duration) {
	return phase(status % int64(phases)), time.Duration(status / int64(phases))
}

// connOf returns the connection of ours below c, or nil.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// noteState is an http.Server's ConnState.
func noteState(nc net.Conn, s http.ConnState) {
	c := connOf(nc)
	if c == nil {
		return
	}
	switch s {
	case http.StateActive:
		if p, _ := read(c.status.Load()); p == fresh {
			c.noteProtocol(nc)
		}
		c.enter(active)
	case http.StateIdle:
		c.idleRequests.Store(c.requests.Load())
		c.idleReceived.Store(c.received.Load())
		c.enter(idle)
	}
}

func (c *conn) noteProtocol(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		c.http2.Store(t.ConnectionState().NegotiatedProtocol == "h2")
	}
}

func (c *conn) enter(p phase) { c.status.Store(status(p, c.of.now())) }

const (
	// burst is what a client may send before it is read slowly. It covers the
	// handshake and several of the largest headers.
	burst = 64 << 10
	// perRequest is what a client may send for each request on top: the header,
	// acknowledgements and window updates.
	perRequest = 2 << 10
	// slowly is how many bytes a second are read beyond that: 455 of the
	// smallest frames.
	slowly = 4 << 10
)

// Read is that of net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.writing.Lock()   // a write ends by its deadline, or because the connection is closed
	c.writing.Unlock() //nolint:staticcheck // waiting for its end is all that is wanted
	n, err := c.TCPConn.Read(p)
	c.received.Add(uint64(max(n, 0))) //nolint:gosec // not negative
	if c.http2.Load() {
		c.pace(n)
	}
	return n, err
}

// pace delays the reader after n more bytes. HTTP/1 has no need of it: all that is
// sent belongs to a request.
func (c *conn) pace(n int) {
	requests := c.requests.Load()
	credit := perRequest * int(min(requests-c.credited, burst/perRequest)) //nolint:gosec // not large
	c.debt, c.credited = max(0, c.debt+n-credit), requests
	if c.debt <= burst {
		return
	}
	wait := time.Duration(c.debt-burst) * time.Second / slowly
	c.debt = burst
	c.of.paced.Inc()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.closed:
	}
}

// Write is that of net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.TCPConn.Write(p)
}

// Close gives the slot back, once: net/http may close a connection repeatedly.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.closing.Do(func() {
		close(c.closed)
		c.of.forget(c)
	})
	return err
}

// weight estimates what a connection holds beyond what any connection does: by
// what it has sent and asked for since it was last idle. One honest request, its
// handshake included, weighs less than heavy.
func (c *conn) weight() uint64 {
	return c.received.Load() - c.idleReceived.Load() + perStream*(c.requests.Load()-c.idleRequests.Load())
}

const (
	perStream = 16 << 10
	heavy     = 32 << 10
)
