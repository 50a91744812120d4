package fakecloud

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
)

// Memory is a listener without a network: a test's time (package testing/synctest) passes while clients wait, which have to dial it.
type Memory struct{ *bufconn.Listener }

// NewMemory makes a listener whose buffers hold the largest request or answer.
func NewMemory() Memory { return Memory{bufconn.Listen(256 << 10)} }

// Accept waits for somebody who dials.
func (m Memory) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return &steady{Conn: c}, err
}

// DialContext connects to the listener, whatever the address.
func (m Memory) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := m.Listener.DialContext(ctx)
	return &steady{Conn: c}, err
}

// steady is a connection of bufconn's on which a deadline that was taken back times nothing out any more, as happens there: a request
// would be read in part then.
type steady struct {
	net.Conn
	mu       sync.Mutex
	deadline time.Time // of reads
}

func (s *steady) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	return s.Conn.SetReadDeadline(t)
}

func (s *steady) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

func (s *steady) Read(p []byte) (int, error) {
	for {
		n, err := s.Conn.Read(p)
		if n > 0 || !isTimeout(err) || !s.takenBack() {
			return n, err
		}
	}
}

// takenBack reports whether the deadline of reads is still to come, and sets it anew.
func (s *steady) takenBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deadline.IsZero() && !s.deadline.After(time.Now()) {
		return false
	}
	_ = s.Conn.SetReadDeadline(s.deadline)
	return true
}

func isTimeout(err error) bool {
	e, is := errors.AsType[net.Error](err)
	return is && e.Timeout()
}

// StartMemory is Start without a network. It returns what clients have to dial.
func StartMemory(t testing.TB, serve func(net.Listener) error) Memory {
	l := NewMemory()
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l
}
