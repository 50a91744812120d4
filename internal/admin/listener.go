package admin

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/keypost/keypost/internal/bind"
)

// listener accepts connections, and keeps at most MaxConnections open. One more closes the oldest one that is not
// being answered, or else the oldest: a probe takes a millisecond, so that nobody can connect often enough to have it
// closed before its answer.
type listener struct {
	*net.TCPListener

	mu   sync.Mutex
	open *list.List // of *conn, the oldest first
}

// conn is a connection of a listener.
type conn struct {
	*net.TCPConn
	of     *listener
	in     *list.Element // of open; nil once it is closed
	active atomic.Bool   // a request is being answered
}

func listen(ctx context.Context, address string) (*listener, error) {
	l, err := bind.TCP(ctx, address)
	if err != nil {
		return nil, err
	}
	return &listener{TCPListener: l, open: list.New()}, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	t, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: t, of: l}
	l.mu.Lock()
	c.in = l.open.PushBack(c)
	victim := l.surplus()
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // its client may have closed it too
	}
	return c, nil
}

// surplus returns the connection that makes room, or nil. It is called with mu held.
func (l *listener) surplus() *conn {
	if l.open.Len() <= MaxConnections {
		return nil
	}
	for e := l.open.Front(); e != l.open.Back(); e = e.Next() {
		if c := e.Value.(*conn); !c.active.Load() {
			return c
		}
	}
	return l.open.Front().Value.(*conn)
}

// Close implements net.Conn. net/http may call it repeatedly.
func (c *conn) Close() error {
	c.of.mu.Lock()
	if c.in != nil {
		c.of.open.Remove(c.in)
		c.in = nil
	}
	c.of.mu.Unlock()
	return c.TCPConn.Close()
}

// noteState is the server's ConnState.
func noteState(nc net.Conn, s http.ConnState) {
	if c, ok := nc.(*conn); ok {
		c.active.Store(s == http.StateActive)
	}
}
