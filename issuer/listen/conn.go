package listen

import (
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection of a listener. It stays a TCP connection: net/http closes only
// the write half of one after refusing a request, so that a reset cannot overtake the
// 431 or 400.
//
// It bounds what its client can make the server hold. Each bound is there for attacks
// of test/attack, whose figures are with it and, in parentheses, without it:
//
//   - Nothing is read while an answer is being written, so that a client that does
//     not read its answers cannot queue more of them: h2-unread-refusals.
//   - An HTTP/2 client that sends many bytes and few requests is read slowly:
//     h2-…-flood on 20 connections, 0.07 s of CPU a second (up to 1.4 s).
//   - Unread answers of all connections together: h2-window-drip on 100 connections
//     with a limit of 64 MiB, 36 MiB (69 MiB, although heavy connections are closed).
//   - Bulky headers of all connections together: h1-header-bomb, 26 MiB (64 MiB).
//   - Time that the server waits for the client (see patience): h2-stall, h1-stall and
//     h1-slow-body on every slot, no honest request fails (most do).
//   - HTTP/2 connections act on what they have read in turns, and not while many
//     answers wait (takeTurn): h2-own-400 on 1,000 connections, 63 to 93 MiB (450 MiB).
//
// What is left is bounded by relieve, the second line: h1-small-bomb.
type conn struct {
	*net.TCPConn
	of *listener

	status     atomic.Int64 // see phase
	requests   atomic.Int64 // that have reached the handler
	unanswered atomic.Int64 // of these: the answer has not been sent
	refused    atomic.Int64 // of these: there was none; see begin
	hiding     atomic.Int64 // answers that it may have had when it was closed for them, until it has ended
	received   atomic.Int64 // bytes, those of TLS too
	wrote      atomic.Int64 // bytes written since it was last idle, those of TLS too
	accounted  atomic.Int64 // of these: what answers of the handler take at most
	http2      atomic.Bool
	patience   patience

	handshaking atomic.Bool // see listener
	answering   atomic.Bool // HTTP/1 with a request, whose goroutine looks out for the client's end until all is sent

	writing sync.Mutex   // held while a write is under way
	writeAt atomic.Int64 // since when, as time since the listener began; 0: none is
	bulky   atomic.Bool  // has a place among the bulky ones
	turn    atomic.Bool  // is one of those that act on what they have read
	turnAt  atomic.Int64 // since when it acts, as time since the listener began

	// Counters of the reader; there is one at a time.
	debt     int64 // bytes received beyond what the requests account for
	credited int64 // requests that are accounted for

	idleRequests, idleReceived atomic.Int64 // the counts when it was last idle

	closing sync.Once
	closed  chan struct{}
}

// phase is what a connection is doing. Its status holds the phase and its begin in
// one word, so that an eviction can compare and swap it.
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
		uncount(&c.handshaking, &c.of.handshaking)
		if p, _ := read(c.status.Load()); p == fresh {
			c.noteProtocol(nc)
		}
		if !c.http2.Load() && c.answering.CompareAndSwap(false, true) {
			c.of.answering.Add(1)
		}
		c.patience.start(c.of.now())
		c.wrote.Store(0)
		c.accounted.Store(0)
		c.enter(active)
	case http.StateIdle:
		uncount(&c.answering, &c.of.answering)
		c.leaveBulky()
		if c.requests.Load() > 0 || !c.http2.Load() { // what comes with the preface of HTTP/2 may be requests
			c.idleRequests.Store(c.requests.Load())
			c.idleReceived.Store(c.received.Load())
		}
		c.patience.stop(c.of.now())
		c.enter(idle)
	case http.StateClosed:
		uncount(&c.handshaking, &c.of.handshaking)
		uncount(&c.answering, &c.of.answering)
		c.of.alive.Add(-1)
		if c.http2.Load() {
			c.of.http2.Add(-1)
		}
		c.of.leaving.Add(-c.hiding.Swap(0))
	}
}

// uncount takes a connection out of those that are counted, if it is one of them.
func uncount(one *atomic.Bool, all *atomic.Int64) {
	if one.CompareAndSwap(true, false) {
		all.Add(-1)
	}
}

// noteProtocol waits for the connection's turn if it is HTTP/2: its first requests may have been read along with the handshake
// and the preface. A thousand connections had 16,000 answers wait that way, and nobody saw whose they were.
func (c *conn) noteProtocol(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); !ok || t.ConnectionState().NegotiatedProtocol != "h2" {
		return
	}
	c.leaveBulky() // its headers are known to be bounded
	c.takeTurn()
	c.http2.Store(true)
	c.of.http2.Add(1)
}

func (c *conn) enter(p phase) { c.status.Store(status(p, c.of.now())) }

const (
	// burst is how many bytes a client may send before it is read slowly: the largest
	// header and some. A hundred connections that send it in refused requests cost a
	// second of CPU.
	burst = 20 << 10
	// perRequest is how many bytes more a client may send with each request: its
	// compressed header, acknowledgements and window updates.
	perRequest = 512
	// slowly is how many bytes a second are read beyond that: 455 of the
	// smallest frames.
	slowly = 4 << 10
)

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.leaveTurn()
	c.writing.Lock()   // a write ends by its deadline, or because the connection is closed
	c.writing.Unlock() //nolint:staticcheck // only waits for the end of a write
	n, err := c.TCPConn.Read(p)
	c.received.Add(int64(n))
	if c.http2.Load() {
		c.pace(int64(n))
		c.takeTurn()
	} else if _, received := c.sinceIdle(); err == nil && received > bulk && !c.bulky.Load() {
		if err := c.joinBulky(); err != nil {
			return 0, err
		}
	}
	return n, err
}

// atATime is how many HTTP/2 connections act on what they have read at a time.
const atATime = 8

// takeTurn waits until few enough answers wait for their clients, and for this
// connection's turn to act on what it has read. By its next Read all of that has been
// acted on: the requests are counted, those that net/http answers by itself too. So no
// more than atATime times maxStreams come on top of what may wait, however many
// connections ask at once. Only looking for too many from time to time let 1,000
// connections take 400 MiB: under such a load the look itself waits for its turn.
func (c *conn) takeTurn() {
	select {
	case c.of.turns <- struct{}{}:
		c.turnAt.Store(math.MaxInt64) // it does not act yet
		c.turn.Store(true)
	case <-c.closed:
		return
	}
	for range int(mostPressure / lookAtPressure) {
		if !c.of.pressed() {
			break
		}
		if c.of.relieving.TryLock() {
			c.of.unblock()
			c.of.relieving.Unlock()
		}
		select {
		case <-c.closed: // which may have been before it had its turn
			c.leaveTurn()
			return
		case <-time.After(lookAtPressure):
		}
	}
	c.turnAt.Store(int64(c.of.now()))
	select {
	case <-c.closed:
		c.leaveTurn()
	default:
	}
}

func (c *conn) leaveTurn() {
	if c.turn.CompareAndSwap(true, false) {
		<-c.of.turns
	}
}

// longestTurn is how long a connection may have its turn while others wait for theirs. What it has read takes far less; but after a
// protocol error net/http reads no more, and closes the connection a second later: h2-continuation-flood on 100
// connections kept all turns so, and honest requests waited for 5 s.
const longestTurn = 100 * time.Millisecond

// endTurns takes the turns back from those that have had them for too long, if there are no others.
func (l *listener) endTurns() {
	if len(l.turns) < cap(l.turns) {
		return
	}
	for _, c := range l.all() {
		if c.turn.Load() && l.now()-time.Duration(c.turnAt.Load()) > longestTurn {
			c.leaveTurn()
		}
	}
}

const (
	lookAtPressure = 5 * time.Millisecond
	// mostPressure is how long one turn takes at most. Those who cause the pressure are
	// closed long before.
	mostPressure = time.Second
)

// bulk is more than an honest handshake and header have together. What a bulky
// header becomes is many times as large.
const bulk = 6 << 10

// joinBulky waits for a place among the connections with a bulky header.
func (c *conn) joinBulky() error {
	t := time.NewTimer(bulkyWait)
	defer t.Stop()
	select {
	case c.of.bulky <- struct{}{}:
		c.bulky.Store(true)
	case <-c.closed:
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
	select {
	case <-c.closed: // which may have been before it had a place
		c.leaveBulky()
	default:
	}
	return nil
}

func (c *conn) leaveBulky() {
	if c.bulky.CompareAndSwap(true, false) {
		<-c.of.bulky
	}
}

// bulkyWait is how long a bulky header waits for others.
const bulkyWait = 3 * time.Second

// begin notes a request. While too many answers wait for their clients, it refuses
// requests of clients that let more wait than they have taken, and a few. On a busy
// machine the answers of an honest one wait, too: for the processor.
func (c *conn) begin() {
	c.requests.Add(1)
	c.accounted.Add(perAnswer)
	c.patience.work(c.of.now())
	own, all := c.await(1)
	if taken := c.requests.Load() - own - c.refused.Load(); all > c.of.mostUnanswered && own > fewUnanswered+taken && c.http2.Load() {
		c.refused.Add(1)
		c.finish()
		c.of.refused.Inc()
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http resets the stream then, and logs nothing
	}
}

// finish notes that a request has got its answer, or will get none.
func (c *conn) finish() {
	c.patience.rest(c.of.now())
	c.await(-1)
}

// await counts n answers more that wait, and returns how many of the connection's do, and of all connections'.
func (c *conn) await(n int64) (own, all int64) {
	if c.http2.Load() {
		c.of.answering.Add(n)
	}
	return c.unanswered.Add(n), c.of.unanswered.Add(n)
}

// fewUnanswered is how many requests of one client are never refused. Four, and
// nothing for what it has taken, made some requests of honest clients fail.
const fewUnanswered = 2

// pace delays the reader after n more bytes. HTTP/1 has no need of it: all that is
// sent belongs to a request.
func (c *conn) pace(n int64) {
	requests := c.requests.Load()
	credit := perRequest * (requests - c.credited)
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

// Write implements net.Conn. It writes as much at a time as TLS does, so that the
// progress of a slow client is noticed.
func (c *conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	defer c.writeAt.Store(0)
	written := 0
	for {
		c.writeAt.Store(int64(c.of.now()))
		n, err := c.TCPConn.Write(p[written:min(len(p), written+mostAtOnce)])
		written += n
		c.wrote.Add(int64(n))
		c.patience.took(n, c.of.now())
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// mostAtOnce is more than a record of TLS is long.
const mostAtOnce = 17 << 10

// Close gives the slot back, once: net/http may close a connection repeatedly.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.closing.Do(func() {
		close(c.closed)
		c.leaveBulky()
		c.leaveTurn()
		c.of.forget(c)
	})
	return err
}

const (
	// heldPerStream is what an answer holds that its client does not take: a
	// goroutine, buffers and the request.
	heldPerStream = 24 << 10
	// heldPerByte is what a byte of a header becomes: a field of four bytes is
	// an entry of a map.
	heldPerByte = 24
	// mostHeader is how many bytes of headers are held at a time.
	mostHeader = 20 << 10
	// ordinary is more than a single honest request weighs, its handshake
	// included, and less than any attack on memory.
	ordinary = 128 << 10
	// ordinaryHeld is more than an honest client lets wait: two answers, or the
	// handshake and half of a header.
	ordinaryHeld   = 64 << 10
	heaviestHeader = mostHeader * heldPerByte
)

// sinceIdle returns how much has come since the connection was last idle. With
// HTTP/1 a connection counts as idle until the next header is complete.
func (c *conn) sinceIdle() (requests, received int64) {
	if p, _ := read(c.status.Load()); p == idle && c.http2.Load() {
		return 0, 0
	}
	return c.requests.Load() - c.idleRequests.Load(), c.received.Load() - c.idleReceived.Load()
}

const (
	// leastAnswer is how many bytes the header of an answer takes at least: a frame's own nine, and a byte for the status
	// and for each field that net/http sets.
	leastAnswer = 14
	// perAnswer is how many bytes an answer of the handler takes at most, without its body: its header, and what two frames and
	// two records of TLS take.
	perAnswer = 300
	// otherFrames is how many bytes the server writes at most, those of TLS too, to a client that has not asked yet: its
	// settings, a window update and an acknowledgement.
	otherFrames = 160
)

// account notes a part of an answer of the handler. Each 4 KiB of it are a frame and a record.
func (c *conn) account(n int) { c.accounted.Add(int64(n + n/64)) }

// hides is how many answers of net/http's own wait for the client of an HTTP/2 connection, as far as what was written shows. Each has
// written its header before it waits, or is behind a write that is stuck: a client whose request itself waits for the processor hides
// nothing. By what had come from it, one that had just connected looked like one that hides sixteen, and 3 to 37 of 167 honest
// requests failed under h2-own-400 on 1,000 connections.
func (c *conn) hides(now time.Duration) int64 {
	most := maxStreams - c.unanswered.Load()
	if at := c.writeAt.Load(); at > 0 && now-time.Duration(at) > stalledSoon {
		return most
	}
	return min(max(0, c.wrote.Load()-c.accounted.Load()-otherFrames)/leastAnswer, most)
}

// mayHide is how many there may be besides. What answers of the handler account for is more than some take, those of HEAD and those whose
// body the client does not let begin: a few of them can hide as many others as a connection may have. But then
// the server waits for the client.
func (c *conn) mayHide(now time.Duration) int64 {
	if c.wrote.Load() == 0 || c.patience.waited(now) <= hidingSoon {
		return 0
	}
	return maxStreams - c.unanswered.Load()
}

// weight is the most that a connection can hold by what has come.
func (c *conn) weight() int64 {
	requests, received := c.sinceIdle()
	return heldPerStream*min(requests, maxStreams) + heldPerByte*min(received, mostHeader)
}

// holds is what a connection does hold: a busy one that takes its answers weighs
// much and holds little.
func (c *conn) holds() int64 {
	held := heldPerStream * c.unanswered.Load()
	if requests, received := c.sinceIdle(); requests == 0 { // of the first header it is not known how far it is
		held += heldPerByte * min(received, mostHeader)
	}
	return held
}
