package listen

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/keypost/keypost/internal/bind"
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

// BenchmarkSmallBuffers is how long a document of 100 KiB takes, with a handshake, through the small buffers of a listener and beside it through
// those that the kernel gives by itself.
func BenchmarkSmallBuffers(b *testing.B) {
	document := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100<<10)) })
	serve := func(l net.Listener, err error) *httptest.Server {
		if err != nil {
			b.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{Handler: document}}
		s.StartTLS()
		b.Cleanup(s.Close)
		return s
	}
	small, err := bind.TCP(b.Context(), "127.0.0.1:0")
	for name, s := range map[string]*httptest.Server{"small": serve(small, err), "usual": serve(net.Listen("tcp", "127.0.0.1:0"))} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(100 << 10)
			for b.Loop() {
				tr := &http.Transport{TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
				resp, err := (&http.Client{Transport: tr}).Get(s.URL)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != 100<<10 || err != nil || resp.Body.Close() != nil {
					b.Fatal(n, err)
				}
				tr.CloseIdleConnections()
			}
		})
	}
}
