package bind

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// A process that is just ending has the address for a moment.
func TestWaitsForTheAddress(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { before.Close() })
	l, err := TCP(t.Context(), before.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// An address that stays in use is an error in the end, and at once for anyone who has been stopped.
func TestAddressInUse(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if _, err := TCP(t.Context(), before.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if _, err := TCP(ctx, before.Addr().String()); err == nil || time.Since(began) > time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
