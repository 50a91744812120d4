package fakecloud

import (
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// StartMemory is Start without a network: a test's time (package testing/synctest) passes while clients wait, which have to dial the
// listener that it returns.
func StartMemory(t testing.TB, serve func(net.Listener) error) *bufconn.Listener {
	l := bufconn.Listen(256 << 10) // a buffer holds the largest request or answer
	done := make(chan error, 1)
	go func() { done <- serve(l) }()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l
}
