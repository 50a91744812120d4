package listen

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory, for tests in which time is synctest's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() pipes { return pipes{make(chan net.Conn), make(chan struct{})} }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// ask makes one request over a new connection.
func (p pipes) ask() (string, error) {
	client, server := net.Pipe()
	defer client.Close()
	select {
	case p.conns <- server:
	case <-p.closed:
		return "", net.ErrClosed
	}
	go io.WriteString(client, "GET / HTTP/1.0\r\n\r\n")
	all, err := io.ReadAll(client)
	return string(all), err
}

func TestDrainTimetable(t *testing.T) {
	for _, tc := range []struct {
		name           string
		delay, timeout time.Duration
		hang           time.Duration // of the request in flight
		want           time.Duration // from the stop to the return
	}{
		{"nothing in flight", 10 * time.Second, 0, 0, 10 * time.Second},
		{"no delay", 0, 0, 0, 0},
		{"waits for the slow one", time.Second, 20 * time.Second, 15 * time.Second, 15 * time.Second},
		{"cuts the very slow one", time.Second, 5 * time.Second, time.Hour, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				drained := false
				c := Config{DrainDelay: tc.delay, DrainTimeout: tc.timeout, Draining: func() { drained = true }}.withDefaults()
				limits := limits{write: 2 * time.Hour, read: 2 * time.Hour}.withDefaults()
				srv := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(tc.hang) }), limits, newErrorLog(c.Log))
				ln, done := newPipes(), make(chan error, 1)
				go func() { done <- run(ctx, c, srv, ln) }()
				if tc.hang > 0 {
					go ln.ask() //nolint:errcheck // one that hangs has no answer
				}
				synctest.Wait()
				begin := time.Now()
				cancel()
				if err := <-done; err != nil || !drained {
					t.Errorf("got %v, Draining called: %v", err, drained)
				}
				// Shutdown polls with a back-off of at most half a second.
				if got := time.Since(begin); got < tc.want || got > tc.want+time.Second {
					t.Errorf("stopped after %v, want %v", got, tc.want)
				}
				time.Sleep(tc.hang) // a bubble must not end before its handlers
			})
		})
	}
}

func TestDrainKeepsAccepting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		c := Config{DrainDelay: 10 * time.Second}.withDefaults()
		ln, done := newPipes(), make(chan error, 1)
		go func() { done <- run(ctx, c, newServer(okHandler, limits{}.withDefaults(), newErrorLog(c.Log)), ln) }()
		cancel()
		for range 9 {
			time.Sleep(time.Second)
			if answer, err := ln.ask(); err != nil || !strings.HasPrefix(answer, "HTTP/1.0 200") {
				t.Fatalf("during the delay: %q, %v", answer, err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := ln.ask(); err == nil {
			t.Error("a connection was accepted after the drain")
		}
	})
}
