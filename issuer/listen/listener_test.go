package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func testListener(t *testing.T, limit int) *listener {
	t.Helper()
	l, err := newListener(t.Context(), "127.0.0.1:0", limit, zap.NewNop())
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
	return c.(*conn), client
}

func TestWhoMakesRoom(t *testing.T) {
	l := testListener(t, 20)
	const now = time.Minute
	put := func(p phase, age time.Duration) *conn {
		c, _ := pair(t, l)
		c.status.Store(status(p, now-age))
		return c
	}
	put(active, now).patience.work(0)      // the server works on it
	put(active, now).patience.restart(now) // has just taken a byte
	waiting := func(since time.Duration) *conn {
		c := put(active, now)
		c.patience.restart(since)
		return c
	}
	waiting(now - stalledAfter)
	stalled, stalledLong := waiting(now-3*time.Second), waiting(now-4*time.Second)
	idleLong, handshaking := put(idle, 50*time.Second), put(fresh, slowAfter+time.Millisecond)
	put(idle, idleAfter/2)
	put(fresh, slowAfter/2)
	idleShort, handshakingLong := put(idle, time.Second), put(fresh, 4*time.Second)
	var got []*conn
	for _, v := range l.evictable(now) {
		got = append(got, v.conn)
	}
	if want := []*conn{handshakingLong, handshaking, idleLong, idleShort, stalledLong, stalled}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What was idle when it was looked at may have a request by the time it is to be closed.
func TestNoRequestIsClosedForRoom(t *testing.T) {
	l := testListener(t, 10)
	c, _ := pair(t, l)
	c.status.Store(status(idle, 0))
	found := l.evictable(l.now())
	if len(found) != 1 {
		t.Fatalf("%d found", len(found))
	}
	c.enter(active)
	if l.close(found[0], "idle") {
		t.Error("a connection with a request was closed")
	}
	c.enter(idle)
	if l.close(found[0], "idle") {
		t.Error("a connection that has been used since was closed")
	}
	if !l.close(victim{conn: c, status: c.status.Load()}, "idle") {
		t.Error("an idle connection was not closed")
	}
	if n := l.open(); n != 0 {
		t.Errorf("%d are open", n)
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

// While connections cannot be accepted idle ones make room, and the log has one line.
func TestExhaustionIsToldOnce(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	l := testListener(t, 10)
	l.log = zap.New(core)
	c, _ := pair(t, l)
	c.status.Store(status(idle, 0))
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS} {
		err := &net.OpError{Op: "accept", Err: e}
		if !isExhaustion(err) {
			t.Errorf("%v is taken for something else", err)
		}
		l.makeRoomAfter(err)
	}
	if isExhaustion(&net.OpError{Op: "accept", Err: syscall.EINVAL}) {
		t.Error("EINVAL is taken for exhaustion")
	}
	if n := l.open(); n != 0 || logs.Len() != 1 {
		t.Errorf("%d connections are open, %d lines were logged; want none, and one line", n, logs.Len())
	}
}

func TestFittingConnections(t *testing.T) {
	for _, tc := range []struct {
		memory int64
		files  uint64
		want   int
	}{
		{384 << 20, 1 << 20, 2529}, // three quarters of 512 MiB
		{192 << 20, 1 << 20, 1084},
		{1 << 62, 1 << 20, 10_000},
		{1 << 62, 1<<64 - 1, 10_000},
		{1 << 62, 1024, 704},
		{1 << 20, 1 << 20, 64},
		{1 << 62, 10, 64},
	} {
		if got := FittingConnections(tc.memory, tc.files); got != tc.want {
			t.Errorf("FittingConnections(%d, %d) = %d, want %d", tc.memory, tc.files, got, tc.want)
		}
	}
}

// A client that does not take its answers is not read from.
func TestNothingIsReadDuringAWrite(t *testing.T) {
	c, client := pair(t, testListener(t, 2))
	written, was := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		_, _ = c.Write(make([]byte, 16<<20))
	}()
	eventually(t, "the write is under way", func() bool {
		if c.writing.TryLock() {
			c.writing.Unlock()
			return false
		}
		return true
	})
	go func() {
		_, _ = c.Read(make([]byte, 1))
		close(was)
	}()
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-was:
		t.Error("it was read while an answer was being written")
	case <-time.After(100 * time.Millisecond):
	}
	go io.Copy(io.Discard, client) //nolint:errcheck // it ends with the connection
	<-written
	<-was
}

// Who sends much and asks little is read slowly; who asks is not.
func TestPace(t *testing.T) {
	c, _ := pair(t, testListener(t, 2))
	delays := func() float64 { return counted(t, c.of.paced) }
	c.pace(burst)
	if delays() != 0 {
		t.Error("delayed within the burst")
	}
	for range 1000 {
		c.requests.Add(1)
		c.pace(perRequest / 2)
	}
	if delays() != 0 {
		t.Error("a client that asks was delayed")
	}
	c.pace(burst)
	began := time.Now()
	c.pace(slowly / 10)
	if took := time.Since(began); delays() == 0 || took < 90*time.Millisecond {
		t.Errorf("a flood was not delayed: %v", took)
	}
	c.Close()
	c.pace(100 * slowly) // returns at once
}

func counted(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// While memory is short those go that hold most and get least done, then idle ones; an ordinary request never does.
func TestRelief(t *testing.T) {
	l := testListener(t, 100)
	var conns []*conn
	for _, c := range []struct {
		phase                       phase
		requests, unanswered, bytes int64
	}{
		{active, 1, 1, 3000},      // honest
		{fresh, 0, 0, 2000},       // honest, still shaking hands
		{idle, 5, 0, 100_000},     // idle
		{fresh, 0, 0, 18_000},     // a huge header
		{active, 9000, 9, 90_000}, // busy, and takes its answers
		{active, 30, 29, 3000},    // many answers that are not taken
		{active, 32, 32, 10_000},  // more of them
	} {
		made, _ := pair(t, l)
		made.requests.Store(c.requests)
		made.unanswered.Store(c.unanswered)
		made.received.Store(c.bytes)
		made.status.Store(status(c.phase, 0))
		if c.phase == idle {
			made.idleRequests.Store(c.requests)
			made.idleReceived.Store(c.bytes)
		}
		conns = append(conns, made)
	}
	open := func() (all []bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, c := range conns {
			_, ok := l.conns[c]
			all = append(all, ok)
		}
		return all
	}
	const limit = 10 << 20 // which leaves 1.25 MiB for connections
	for i, round := range []struct {
		memory memory
		want   []bool
	}{
		{memory{used: limit / 3, limit: limit}, []bool{true, true, true, true, true, true, true}},
		{memory{used: limit, limit: limit}, []bool{true, true, true, false, true, false, false}},
		{memory{used: limit, limit: limit}, []bool{true, true, true, false, true, false, false}}, // enough for now
		{memory{live: limit, limit: limit}, []bool{true, true, true, false, false, false, false}},
		{memory{live: limit, limit: limit}, []bool{true, true, false, false, false, false, false}},
		{memory{live: limit, limit: limit}, []bool{true, true, false, false, false, false, false}},
	} {
		l.relieveOnce(round.memory)
		if got := open(); !slices.Equal(got, round.want) {
			t.Errorf("after round %d: open %v, want %v", i+1, got, round.want)
		}
	}
}

func TestReliefBeginsWhenMemoryIsShort(t *testing.T) {
	for _, tc := range []struct {
		m    memory
		want bool
	}{
		{memory{live: 60, used: 200, limit: 100}, false}, // the connection holds little
		{memory{live: 80, used: 80, limit: 100}, true},
		{memory{live: 1 << 40, used: 1 << 40, limit: math.MaxInt64}, false}, // no limit
	} {
		l := testListener(t, 2)
		c, _ := pair(t, l)
		c.requests.Store(1)
		c.received.Store(100_000)
		tc.m.live, tc.m.used = tc.m.live<<20, tc.m.used<<20
		if tc.m.limit < math.MaxInt64 {
			tc.m.limit <<= 20
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*relieveEvery)
		l.relieve(ctx, func() memory { return tc.m })
		cancel()
		if closed := l.open() == 0; closed != tc.want {
			t.Errorf("%+v: closed %v, want %v", tc.m, closed, tc.want)
		}
	}
	if m := goMemory()(); m.live <= 0 || m.used <= 0 || m.limit <= 0 {
		t.Errorf("the runtime says %+v", m)
	}
}

// Bulky headers wait for each other, and a place is given back whatever ends the connection.
func TestBulkyHeadersHaveFewPlaces(t *testing.T) {
	l := testListener(t, 20)
	l.bulky = make(chan struct{}, 2)
	read := func(c *conn, client net.Conn, n int) error {
		if _, err := client.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadFull(c, make([]byte, n))
		return err
	}
	small, smallClient := pair(t, l)
	if err := read(small, smallClient, bulk-1000); err != nil || len(l.bulky) != 0 {
		t.Fatalf("an ordinary header: %v, %d places taken", err, len(l.bulky))
	}
	first, firstClient := pair(t, l)
	second, secondClient := pair(t, l)
	for _, p := range []struct {
		c      *conn
		client net.Conn
	}{{first, firstClient}, {second, secondClient}} {
		if err := read(p.c, p.client, 2*bulk); err != nil {
			t.Fatal(err)
		}
	}
	third, thirdClient := pair(t, l)
	if err := read(third, thirdClient, 2*bulk); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third one was read at once: %v", err)
	}
	second.Close()
	noteState(first, http.StateActive)
	noteState(first, http.StateIdle)
	if n := len(l.bulky); n != 0 {
		t.Fatalf("%d places are taken after the requests", n)
	}
	if err := read(first, firstClient, 2*bulk); err != nil || len(l.bulky) != 1 {
		t.Errorf("the next header on a connection that was idle: %v, %d places", err, len(l.bulky))
	}
	fourth, fourthClient := pair(t, l)
	fourth.Close()
	fourthClient.Close()
	if err := fourth.joinBulky(); err != nil || len(l.bulky) != 1 {
		t.Errorf("a closed connection keeps a place: %v, %d", err, len(l.bulky))
	}
}

// What an HTTP/2 client does not take counts as unanswered; what it takes does not.
func TestUnansweredRequestsAreCounted(t *testing.T) {
	seen := make(chan *conn, 10)
	s := startSite(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Context().Value(connKey{}).(*conn)
		_, _ = io.WriteString(w, "hello")
	})})
	conf := s.clientTLS()
	conf.NextProtos = []string{"h2"}
	raw, err := tls.Dial("tcp", s.address, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	go io.Copy(io.Discard, raw) //nolint:errcheck // it ends with the connection
	fr := http2.NewFramer(raw, nil)
	if _, err := io.WriteString(raw, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for stream := uint32(1); stream <= 5; stream += 2 {
		block.Reset()
		for name, value := range map[string]string{":method": "GET", ":scheme": "https", ":authority": "oidc.example.com", ":path": "/"} {
			_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value}) // into memory
		}
		if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	c := <-seen
	eventually(t, "three wait", func() bool { return c.unanswered.Load() == 3 && c.holds() == 3*heldPerStream })
	if err := fr.WriteWindowUpdate(3, 100); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two wait", func() bool { return c.unanswered.Load() == 2 && c.of.unanswered.Load() == 2 })
}

// When too many answers wait, a client that lets several wait gets no more of them; others do.
func TestTooManyUnansweredRequests(t *testing.T) {
	l := testListener(t, 5)
	l.mostUnanswered = 10
	l.unanswered.Store(10)
	refused := func(c *conn) (was bool) {
		defer func() { was = recover() != nil }()
		c.begin()
		return false
	}
	for _, tc := range []struct {
		http2 bool
		own   int64
		all   int64
		want  bool
	}{{true, fewUnanswered, 10, true}, {true, fewUnanswered - 1, 10, false}, {true, 20, 9, false}, {false, 20, 10, false}} {
		c, _ := pair(t, l)
		c.http2.Store(tc.http2)
		c.unanswered.Store(tc.own)
		l.unanswered.Store(tc.all)
		if got := refused(c); got != tc.want {
			t.Errorf("%+v: refused %v", tc, got)
		}
		added := map[bool]int64{true: 0, false: 1}[tc.want]
		if c.unanswered.Load() != tc.own+added || l.unanswered.Load() != tc.all+added {
			t.Errorf("%+v: counted %d and %d", tc, c.unanswered.Load(), l.unanswered.Load())
		}
	}
}
