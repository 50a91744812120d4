// Package silent has a server that accepts connections and says nothing, as a hung load balancer does.
package silent

import (
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Server is such a server.
type Server struct {
	Address string
	taken   atomic.Int64
	open    atomic.Int64
}

// Listen starts a server that answers whatever comes first on a connection with begin, and then says nothing.
func Listen(t *testing.T, begin string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &Server{Address: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.taken.Add(1)
			s.open.Add(1)
			go func() {
				defer s.open.Add(-1)
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, begin)
				_, _ = io.Copy(io.Discard, c) // until the client closes it
				_ = c.Close()
			}()
		}
	}()
	return s
}

// LeavesNothing makes each call to the server a few times, one after the other. It fails t unless all return an error before long, and
// then no connection and no goroutine stays. A call gives up when its argument is over.
func (s *Server) LeavesNothing(t *testing.T, calls ...func(patience time.Duration) error) {
	t.Helper()
	const each, patience = 5, 100 * time.Millisecond
	before := runtime.NumGoroutine()
	for i := range each * len(calls) {
		began := time.Now()
		if err := calls[i%len(calls)](patience); err == nil {
			t.Fatal("it got an answer")
		} else if took := time.Since(began); took > patience+5*time.Second {
			t.Fatalf("it took %v: %v", took, err)
		}
	}
	if s.taken.Load() == 0 {
		t.Fatal("it did not connect")
	}
	end := time.Now().Add(30 * time.Second) // a TLS handshake outlives its call by ten seconds
	for s.open.Load() > 0 || runtime.NumGoroutine() > before+2 {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d of %d connections are left, and %d goroutines for %d:\n%s", s.open.Load(), s.taken.Load(), runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(50 * time.Millisecond)
	}
}
