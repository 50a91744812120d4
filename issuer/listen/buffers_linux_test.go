package listen

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// meminfo reads what the kernel holds for a socket: SO_MEMINFO of include/uapi/linux/sock_diag.h.
func meminfo(t *testing.T, c *net.TCPConn) (received, mostReceived, queued, mostQueued, ahead, backlog int) {
	t.Helper()
	const soMeminfo = 55
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soMeminfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil || errno != 0 {
		t.Fatal(err, errno)
	}
	return int(info[0]), int(info[1]), int(info[5]), int(info[3]), int(info[4]), int(info[7])
}

// What the kernel holds for a connection that is full in both directions is what maxConnections reckons with.
func TestKernelBuffersAreReckonedWith(t *testing.T) {
	c, client := pair(t, testListener(t, 2))
	fill := func(c net.Conn) { // until nothing more has gone into it for a while
		for chunk := make([]byte, 64<<10); ; {
			_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := c.Write(chunk); n == 0 || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
		}
	}
	full := make(chan struct{})
	go func() {
		defer close(full)
		fill(client)
	}()
	fill(c)
	<-full
	received, mostReceived, queued, mostQueued, ahead, backlog := meminfo(t, c.TCPConn)
	t.Logf("received %d of %d, to be sent %d of %d, ahead %d, backlog %d", received, mostReceived, queued, mostQueued, ahead, backlog)
	if received < 1<<10 || queued < 1<<10 {
		t.Fatal("the buffers are not full")
	}
	if held := received + queued + ahead + backlog; held > inKernel || mostReceived+mostQueued > inKernel {
		t.Errorf("the kernel holds %d and permits %d, reckoned with %d", held, mostReceived+mostQueued, inKernel)
	}
}
