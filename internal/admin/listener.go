package admin

import (
	"context"
	"net"
	"net/http"
	"slices"
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
	open []*conn // the oldest first
}

// conn is a connection of a listener.
type conn struct {
	*net.TCPConn
	of     *listener
	active atomic.Bool // a request is being answered
}

func listen(ctx context.Context, address string) (*listener, error) {
	l, err := bind.TCP(ctx, address)
	if err != nil {
		return nil, err
	}
	return &listener{TCPListener: l}, nil
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	t, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: t, of: l}
	l.mu.Lock()
	victim := l.surplus()
	l.open = append(l.open, c)
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // its client may have closed it too
	}
	return c, nil
}

// surplus returns the connection that makes room for one more, or nil. It is called with mu held.
func (l *listener) surplus() *conn {
	if len(l.open) < MaxConnections {
		return nil
	}
	return l.open[max(0, slices.IndexFunc(l.open, func(c *conn) bool { return !c.active.Load() }))]
}

// Close implements net.Conn. net/http may call it repeatedly.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(o *conn) bool { return o == c })
	c.of.mu.Unlock()
	return c.TCPConn.Close()
}

// noteState is the server's ConnState.
func noteState(nc net.Conn, s http.ConnState) {
	if c, ok := nc.(*conn); ok {
		c.active.Store(s == http.StateActive)
	}
}
