package listen

import (
	"errors"
	"net"
	"net/http"
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
	fill := func(c net.Conn) { // until nothing more has gone into it for a second
		for chunk := make([]byte, 64<<10); ; {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
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

// A connection that nobody has accepted yet has the small buffers too.
func TestKernelBuffersBeforeAccept(t *testing.T) {
	l := testListener(t, 2)
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	time.Sleep(50 * time.Millisecond)
	_ = client.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	_, _ = client.Write(make([]byte, 64<<20))
	c, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if received, most, _, _, _, _ := meminfo(t, c); received > inKernel || most > inKernel {
		t.Errorf("%d bytes of %d were received before the connection was accepted, reckoned with %d", received, most, inKernel)
	}
}

// A document of 100 KiB passes the small buffers quickly.
func TestSmallBuffersAreFastEnough(t *testing.T) {
	const size, times = 100 << 10, 20
	text := make([]byte, size)
	s := startSite(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })})
	conf := s.clientTLS()
	for _, protocol := range []string{"http/1.1", "h2"} {
		began := time.Now()
		for range times {
			c := conf.Clone()
			c.NextProtos = []string{protocol}
			_, body, err := get(t, "https://"+s.address+"/", c, protocol == "h2")
			if err != nil || len(body) != size {
				t.Fatal(len(body), err)
			}
		}
		each := time.Since(began) / times
		t.Logf("%s: %v for each, with a handshake", protocol, each)
		if each > 150*time.Millisecond {
			t.Errorf("%s: %v for each document of 100 KiB", protocol, each)
		}
	}
}
