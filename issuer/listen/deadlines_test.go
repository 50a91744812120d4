package listen

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// pair returns a connection as the listener accepts it, and its client.
func pair(t *testing.T) (*limitedConn, net.Conn) {
	t.Helper()
	ln, err := bind("127.0.0.1:0", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*limitedConn), client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readOne(c net.Conn) (time.Duration, error) {
	began := time.Now()
	_, err := c.Read(make([]byte, 1))
	return time.Since(began), err
}

// A read that waits ends at its deadline, and never before it.
func TestReadEndsAtItsDeadline(t *testing.T) {
	c, _ := pair(t)
	const after = 300 * time.Millisecond
	must(t, c.SetReadDeadline(time.Now().Add(after)))
	took, err := readOne(c)
	if !errors.Is(err, os.ErrDeadlineExceeded) || took < after-sweepEvery/10 || took > 20*time.Second {
		t.Errorf("the read ended after %v with %v; want a timeout after %v", took, err, after)
	}
}

// A client that stops reading must not hold the writer for longer than its deadline.
func TestWriteEndsAtItsDeadline(t *testing.T) {
	c, _ := pair(t)
	must(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err := c.Write(make([]byte, 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the write ended with %v; want a timeout", err)
	}
}

// net/http ends a read under way by a deadline in the past, and uses the connection again after taking it back.
func TestDeadlineInThePastActsAtOnceAndIsTakenBack(t *testing.T) {
	c, client := pair(t)
	ended := make(chan error, 1)
	go func() {
		_, err := readOne(c)
		ended <- err
	}()
	must(t, c.SetReadDeadline(time.Unix(1, 0)))
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the read under way ended with %v; want a timeout", err)
	}
	must(t, c.SetDeadline(time.Time{}))
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := readOne(c); err != nil {
		t.Errorf("after the deadline was taken back: %v", err)
	}
}

// A deadline that moves on before it is reached, as with each request of a busy connection, never cuts it.
func TestMovedDeadlineDoesNotCut(t *testing.T) {
	c, client := pair(t)
	const span = 4 * sweepEvery
	for range 3 {
		must(t, c.SetDeadline(time.Now().Add(span)))
		go func() {
			time.Sleep(span / 2)
			client.Write([]byte("x"))
		}()
		if _, err := readOne(c); err != nil {
			t.Fatalf("a connection within its deadline was cut: %v", err)
		}
	}
}

// The sweep ends with the listener and the last of its connections, not before: those that are left still have deadlines.
func TestSweepEndsWithTheLastConnection(t *testing.T) {
	d := newDeadlines()
	c := &limitedConn{}
	c.read.tell = func(time.Time) error { return nil }
	d.add(c)
	closed, ended := make(chan struct{}), make(chan struct{})
	close(closed)
	go func() { d.watch(closed); close(ended) }()
	select {
	case <-ended:
		t.Fatal("the sweep ended while a connection was open")
	case <-time.After(3 * sweepEvery):
	}
	d.remove(c)
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the sweep goes on without a connection")
	}
}
