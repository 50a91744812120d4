package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/bind"
)

func testListener(t *testing.T, limit int) *listener {
	t.Helper()
	l, err := newListener(t.Context(), Config{Address: "127.0.0.1:0", MaxConnections: limit}.withDefaults(), newErrorLog(zap.NewNop()))
	if err != nil {
		t.Fatal(err)
	}
	l.began = l.began.Add(-time.Hour) // so that a status of zero is old
	t.Cleanup(func() { l.Close() })
	return l
}

// pair returns a connection as the listener accepts it, and its client.
func pair(t *testing.T, l *listener) (*conn, net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*session).conn, client
}

// Of those that may make room the first goes: who is slow with the handshake or the first header, who is idle, who does not take
// an answer, who has just become idle. The others stay.
func TestWhoMakesRoom(t *testing.T) {
	l := testListener(t, 20)
	const now = time.Minute
	put := func(p phase, age time.Duration, received int64) *conn {
		c, _ := pair(t, l)
		c.received.Store(received)
		c.status.Store(status(p, now-age))
		return c
	}
	put(active, slowAfter, 1)
	put(fresh, slowAfter/2, 1)
	put(fresh, silentAfter/2, 0)
	stalled, stalledLong := put(active, 3*time.Second, 1), put(active, 4*time.Second, 1)
	idleLong, slow := put(idle, 50*time.Second, 1), put(fresh, slowAfter+time.Millisecond, 1)
	busy, idleShort := put(idle, time.Millisecond, 1), put(idle, time.Second, 1)
	slowLong, silent := put(fresh, 4*time.Second, 1), put(fresh, silentAfter+time.Millisecond, 0)
	for i, want := range []*conn{slowLong, slow, silent, idleLong, idleShort, stalledLong, stalled, busy} {
		v, found := l.next(now)
		if !found || v.conn != want {
			t.Fatalf("number %d is another one: %v, found %v", i, v, found)
		}
		v.conn.status.Store(status(evicted, 0))
	}
	if v, found := l.next(now); found {
		t.Errorf("%v may have to make room", v)
	}
}

// Who has spoken is not closed for room, even if nobody has read it yet.
func TestWhatIsUnreadIsNotSilence(t *testing.T) {
	l := testListener(t, 10)
	for _, p := range []phase{fresh, idle} {
		c, client := pair(t, l)
		c.status.Store(status(p, l.now()-time.Second))
		if _, err := client.Write([]byte{22}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has come", func() bool { return bind.Unread(c.TCPConn) })
		l.evict()
		if now, _ := read(c.status.Load()); now == evicted {
			t.Errorf("in phase %d one that has spoken was closed", p)
		}
	}
}

// What was idle when it was looked at may have a request by the time it is to be closed. One that is closed keeps its slot until
// its goroutine has ended.
func TestNoRequestIsClosedForRoom(t *testing.T) {
	l := testListener(t, 10)
	c, _ := pair(t, l)
	c.enter(active)
	if l.evict(); c.SetDeadline(time.Time{}) != nil {
		t.Fatal("a connection with a request was closed")
	}
	c.status.Store(status(idle, 0))
	if l.evict(); c.SetDeadline(time.Time{}) == nil {
		t.Error("an idle connection was not closed")
	}
	if n := len(l.slots); n != 1 {
		t.Errorf("%d slots are taken before the goroutine has ended", n)
	}
	_, _ = c.Close(), c.Close() // it is closed already
	if n := len(l.slots) + l.open(); n != 0 {
		t.Errorf("%d slots and connections are left", n)
	}
}

// slowly answers /slow after a while, all else at once.
func slowHandler(hold <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-hold
		}
		_, _ = io.WriteString(w, "ok")
	})
}

func ask(c net.Conn, path string) error {
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
	return err
}

func answered(c net.Conn, within time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestConnectionLimit(t *testing.T) {
	const limit = 3
	metrics, hold := prometheus.NewRegistry(), make(chan struct{})
	address, _ := start(t, Config{Handler: slowHandler(hold), MaxConnections: limit, Metrics: metrics})
	connect := func(path string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := ask(c, path); err != nil {
			t.Fatal(err)
		}
		return c
	}
	var busy []net.Conn
	for range limit {
		busy = append(busy, connect("/slow"))
	}
	waiting := connect("/")
	if err := answered(waiting, 3*idleAfter); !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		t.Fatalf("a connection beyond the limit was served: %v", err)
	}
	if got := gathered(t, metrics, "keypost_connections_open"); got != limit {
		t.Errorf("keypost_connections_open is %v, want %d", got, limit)
	}
	close(hold)
	for i, c := range busy {
		if err := answered(c, 20*time.Second); err != nil {
			t.Errorf("request %d under way was cut: %v", i, err)
		}
	}
	// Now that they are idle they make room.
	if err := answered(waiting, 20*time.Second); err != nil {
		t.Errorf("the waiting connection got no turn: %v", err)
	}
	if got := gathered(t, metrics, "keypost_connections_evicted_total"); got == 0 {
		t.Error("no eviction was counted")
	}
	for _, c := range append(busy, waiting) {
		c.Close()
	}
	eventually(t, "every slot is given back", func() bool { return gathered(t, metrics, "keypost_connections_open") == 0 })
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func TestFittingConnections(t *testing.T) {
	for _, tc := range []struct {
		memory int64
		files  uint64
		others uint16
		want   int
	}{
		{384 << 20, 1 << 20, 0, 1869}, // three quarters of 512 MiB
		{384 << 20, 1 << 20, MaxChallengers, 1369},
		{192 << 20, 1 << 20, 0, 801},
		{1 << 62, 1 << 20, 0, 10_000},
		{1 << 62, 1<<64 - 1, 0, 10_000},
		{1 << 62, 1<<64 - 1, MaxChallengers, 10_000},
		{1 << 62, 1024, 0, 704},
		{1 << 62, 1024, MaxChallengers, 204},
		{1 << 20, 1 << 20, 0, 64},
		{1 << 62, 10, 0, 64},
		{1 << 62, 10_330, 0, 10_000},
		{1 << 62, 10_330, 20, 9990},
	} {
		if got := FittingConnections(tc.memory, tc.files, tc.others); got != tc.want {
			t.Errorf("FittingConnections(%d, %d, %d) = %d, want %d", tc.memory, tc.files, tc.others, got, tc.want)
		}
	}
}

// A handshake and a header have bounds of bytes and of fields; within them they are answered.
func TestBoundsOfARequest(t *testing.T) {
	s := startSite(t, Config{})
	fields := func(n int) string { return strings.Repeat("a:\n", n-1) } // besides Host
	for name, tt := range map[string]struct{ request, want string }{
		"many fields":             {"GET / HTTP/1.1\r\nHost: a\r\n" + fields(maxFields) + "\r\n", "200"},
		"too many fields":         {"GET / HTTP/1.1\r\nHost: a\r\n" + fields(maxFields+1) + "\r\n", "400"},
		"a body of many lines":    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n" + strings.Repeat("x\n", 150), "200"},
		"too many in the trailer": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + fields(300) + "\r\n", "200"},
	} {
		c := s.dial(t)
		_, _ = io.WriteString(c, tt.request) // the server may have refused it before the end
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || strconv.Itoa(resp.StatusCode) != tt.want {
			t.Errorf("%s: %v, %v; want %s", name, resp, err, tt.want)
		}
	}
	c := s.dial(t)
	for range 3 * maxFields {
		if err := ask(c, "/"); err != nil {
			t.Fatal(err)
		}
		if err := answered(c, 5*time.Second); err != nil {
			t.Fatalf("fields of several requests count together: %v", err)
		}
		_, _ = c.Read(make([]byte, 4096))
	}
	raw, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	hello := append([]byte{22, 3, 1, 64, 0, 1, 0, 255, 255}, make([]byte, 16<<10-4)...) // the first record of a handshake of 64 KiB
	_, _ = raw.Write(append(hello, hello...))                                           // the server may have closed it
	eventually(t, "the handshake is refused", func() bool {
		return gathered(t, s.metrics, "keypost_tls_handshake_errors_total") > 0
	})
	checkCounter(t, s, otherReason) // and not for its time
}
