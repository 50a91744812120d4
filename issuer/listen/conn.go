package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a TCP connection that holds one of the listener's slots.
type conn struct {
	*net.TCPConn
	of       *listener
	status   atomic.Int64 // see phase
	received atomic.Int64 // bytes, those of TLS too
	greeted  bool         // the TLS handshake is done, or there is none; of the reader only
	closing  sync.Once
}

// phase is what a connection is doing. Its status holds the phase and its begin in
// one word, so that an eviction can compare and swap it.
type phase int64

const (
	fresh  phase = iota // no request has been read yet: handshake or first header
	active              // from a request's header to the end of its answer
	idle
	evicted
	phases // how many there are
)

func status(p phase, since time.Duration) int64 { return int64(since)*int64(phases) + int64(p) }

func read(status int64) (phase, time.Duration) {
	return phase(status % int64(phases)), time.Duration(status / int64(phases))
}

func (c *conn) enter(p phase) { c.status.Store(status(p, c.of.now())) }

var errHandshake = fmt.Errorf("the TLS handshake takes more than %d KiB", maxHandshake>>10)

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if c.received.Add(int64(n)) > maxHandshake && !c.greeted {
		return 0, errHandshake
	}
	return n, err
}

// Close implements net.Conn. net/http calls it as the last act of a connection's goroutine: the slot is given back when nothing of
// the connection is left.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.closing.Do(func() { c.of.forget(c) })
	return err
}

// session is what net/http reads requests from: a conn, or TLS on top of one. It stays a connection with a write half: net/http
// closes only that after refusing a request, so that a reset cannot overtake the 431 or 400.
type session struct {
	duplex
	conn  *conn
	lines int  // since the last empty one; of the reader only
	begun bool // the line that is being read is not empty; of the reader only
}

// enter notes what the connection is doing.
func (s *session) enter(p phase) { s.conn.enter(p) }

type duplex interface {
	net.Conn
	CloseWrite() error
}

var errFields = fmt.Errorf("a request has more than %d header fields", maxFields)

// Read implements net.Conn. It bounds the lines of a header and of what follows a body. A body's lines count too: net/http reads
// some of it to be able to go on with the connection, which nobody needs here.
func (s *session) Read(p []byte) (int, error) {
	if s.lines > maxFields+1 { // with the request line
		return 0, errFields // net/http answers 400, unless it has answered already
	}
	n, err := s.duplex.Read(p)
	for i, b := range p[:n] {
		switch {
		case b == '\r':
		case b != '\n':
			s.begun = true
		case !s.begun:
			s.lines = 0
		default:
			s.begun = false
			if s.lines++; s.lines > maxFields+1 {
				return i, nil
			}
		}
	}
	return n, err
}

// tlsSession is a session that net/http takes for one with TLS, since it has a ConnectionState.
type tlsSession struct {
	*session
	tls *tls.Conn
}

// ConnectionState makes the handshake: net/http asks for the state before it reads. After a handshake that failed, every read fails.
func (s tlsSession) ConnectionState() tls.ConnectionState {
	_ = s.SetDeadline(time.Now().Add(s.conn.of.limits.read)) // a closed connection is seen below
	if err := s.tls.Handshake(); err != nil {
		s.conn.of.errors.handshake(err)
		if record := (tls.RecordHeaderError{}); errors.As(err, &record) && record.Conn != nil && record.RecordHeader[0] >= 'A' && record.RecordHeader[0] <= 'Z' {
			_, _ = io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
		}
		_ = s.conn.TCPConn.Close()
	}
	_ = s.SetDeadline(time.Time{})
	s.conn.greeted = true
	return s.tls.ConnectionState()
}

// noteState is an http.Server's ConnState.
func noteState(nc net.Conn, state http.ConnState) {
	own, ok := nc.(interface{ enter(p phase) })
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		own.enter(active)
	case http.StateIdle:
		own.enter(idle)
	}
}
