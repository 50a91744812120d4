// Package bind opens TCP listeners whose clients cannot make the kernel hold much.
package bind

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// patience is how long an address may be in use by a process that is just ending, such as the one that this one replaces.
const patience = 2500 * time.Millisecond

// Buffer is what is asked of the kernel for each of a connection's two buffers, in bytes; it grants twice as much. Unset
// they grow to megabytes, which count as memory of this process's cgroup. A header of 16 KiB and most answers fit;
// 100 KiB take four or five round trips.
const Buffer = 16 << 10

// TCP listens on address, host:port. While the address is in use it tries again for 2.5 s. The kernel's keep-alive probes
// are on, as the net package sets them.
func TCP(ctx context.Context, address string) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: smallBuffers}
	for deadline := time.Now().Add(patience); ; {
		l, err := config.Listen(ctx, "tcp", address)
		if err == nil {
			return l.(*net.TCPListener), nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(patience / 25):
		}
	}
}

// smallBuffers sets the buffers of a listening socket. Its connections inherit them before they are accepted: what waits
// in the kernel's queue takes memory too.
func smallBuffers(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = errors.Join(
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, Buffer),
			syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, Buffer),
		)
	})
	return errors.Join(err, set)
}

// Unread reports whether something has come over a connection that nobody has read yet, or that it has ended.
func Unread(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	there := true
	err = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		there = !errors.Is(err, syscall.EAGAIN)
	})
	return there || err != nil
}
