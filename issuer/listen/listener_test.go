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
		c.patience = patience{}
		c.received.Store(1)
		c.status.Store(status(p, now-age))
		return c
	}
	put(active, now).patience.work(0)     // the server works on it
	put(active, now).patience.since = now // has just taken its bytes
	waiting := func(since time.Duration) *conn {
		c := put(active, now)
		c.patience.since = since
		return c
	}
	waiting(now - stalledAfter)
	stalled, stalledLong := waiting(now-3*time.Second), waiting(now-4*time.Second)
	idleLong, handshaking := put(idle, 50*time.Second), put(fresh, slowAfter+time.Millisecond)
	put(idle, idleAfter/2)
	put(fresh, slowAfter/2)
	idleShort, handshakingLong := put(idle, time.Second), put(fresh, 4*time.Second)
	silent := put(fresh, silentAfter+time.Millisecond)
	silent.received.Store(0)
	put(fresh, silentAfter/2).received.Store(0)
	busy := put(idle, time.Millisecond)
	busy.requests.Store(1)
	var got []*conn
	for _, v := range l.evictable(now) {
		got = append(got, v.conn)
	}
	if want := []*conn{handshakingLong, handshaking, silent, idleLong, idleShort, stalledLong, stalled, busy}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The first request of a connection has the time of any other, however long the server has run.
func TestFirstRequestIsNotStalled(t *testing.T) {
	l := testListener(t, 10) // which has run for an hour
	for name, states := range map[string][]http.ConnState{"HTTP/1.1": {http.StateActive}, "HTTP/2": {http.StateActive, http.StateIdle, http.StateActive}} {
		c, _ := pair(t, l)
		for _, s := range states {
			noteState(c, s)
		}
		if v, found := c.judge(l.now()); found {
			t.Errorf("%s: it may have to make room: waited %v", name, v.age)
		}
		if v, found := c.judge(l.now() + 2*stalledAfter); !found || v.kind() != "stalled" {
			t.Errorf("%s: it never has to make room: %v, %v", name, v, found)
		}
	}
}

// Who has begun to speak is not silent, even if nobody has read it yet.
func TestWhatIsUnreadIsNotSilence(t *testing.T) {
	l := testListener(t, 10)
	c, client := pair(t, l)
	v, found := c.judge(l.now() + 2*silentAfter)
	if !found || !v.still(l.now()) {
		t.Fatalf("a silent connection stays: %v, %v", v, found)
	}
	if _, err := client.Write([]byte{22}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has spoken", func() bool { return !v.still(l.now()) })
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
		others uint16
		want   int
	}{
		{384 << 20, 1 << 20, 0, 2389}, // three quarters of 512 MiB
		{384 << 20, 1 << 20, MaxChallengers, 1889},
		{192 << 20, 1 << 20, 0, 1024},
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

// What strangers may make the process hold does not grow with the machine.
func TestReliefOnALargeMachine(t *testing.T) {
	l := testListener(t, 5)
	l.bound(16 << 30)
	if most := l.mostUnanswered*heldPerStream + int64(cap(l.bulky))*heaviestHeader; most > 2*mostHeld {
		t.Errorf("answers that wait and bulky headers may hold %d MiB", most>>20)
	}
	c, _ := pair(t, l)
	c.unanswered.Store(mostHeld / heldPerStream)
	if n := l.relieveOnce(memory{used: 100 << 20, live: 50 << 20, limit: 16 << 30}); n != 1 {
		t.Errorf("%d connections were closed for one that holds %d MiB", n, c.holds()>>20)
	}
}

// Many clients that let a few answers wait each hold as much as one that lets many wait; those with one or two stay.
func TestReliefOfManyThatHoldAFew(t *testing.T) {
	l := testListener(t, 100)
	l.bound(10 << 20) // which leaves 1.25 MiB for connections
	var percents []int
	l.thrift.set = func(percent int) int { percents = append(percents, percent); return 0 }
	var few, honest []*conn
	for i := range 60 {
		c, _ := pair(t, l)
		c.requests.Store(4)
		if c.unanswered.Store(2); i >= 10 {
			c.unanswered.Store(4)
			few = append(few, c)
		} else {
			honest = append(honest, c)
		}
	}
	l.relieveOnce(memory{used: 10 << 20, limit: 10 << 20})
	var left int64
	for c := range l.conns {
		left += c.holds()
	}
	if left > 1<<20 {
		t.Errorf("%d KiB are still held", left>>10)
	}
	for _, c := range honest {
		if _, ok := l.conns[c]; !ok {
			t.Fatal("a client with two answers had to go")
		}
	}
	if n := l.open(); n == len(honest) || n == len(honest)+len(few) {
		t.Errorf("%d are open, want some of those that hold a few", n)
	}
	l.relieveOnce(memory{used: 10 << 20, limit: 10 << 20})
	l.thrift.end(l.now())
	l.thrift.end(l.now() + 2*calm)
	l.thrift.end(l.now() + 3*calm)
	if !slices.Equal(percents, []int{thriftyPercent, usualPercent}) {
		t.Errorf("the garbage collector was told %v", percents)
	}
}

// While many answers wait, those go whose clients let them wait for longest, until half as many wait.
func TestStalledClientsGoWhileManyAnswersWait(t *testing.T) {
	l := testListener(t, 50)
	l.mostUnanswered = 40
	now := l.now()
	var long, short []*conn
	for i := range 40 {
		c, _ := pair(t, l)
		c.requests.Store(1)
		c.unanswered.Store(1)
		c.status.Store(status(active, now-time.Minute))
		if c.patience = (patience{since: now - stalledSoon/2}); i%2 == 0 {
			c.patience.since = now - 2*stalledSoon
			long = append(long, c)
		} else {
			short = append(short, c)
		}
		l.unanswered.Add(1)
	}
	l.unanswered.Store(30)
	l.unblock()
	if n := l.open(); n != 40 {
		t.Fatalf("%d are open while few answers wait", n)
	}
	l.unanswered.Store(40)
	l.unblock()
	if n := l.open(); n != len(short) {
		t.Errorf("%d are open, want %d", n, len(short))
	}
	for _, c := range long {
		if p, _ := read(c.status.Load()); p != evicted {
			t.Error("one that was waited for longest is still there")
		}
	}
}

// Answers that net/http gives by itself are seen by their goroutines, and looked for where much was sent and nothing got done.
func TestHiddenAnswers(t *testing.T) {
	l := testListener(t, 50)
	l.mostUnanswered = 100
	put := func(p phase, http2 bool, requests, received int64) *conn {
		c, _ := pair(t, l)
		c.http2.Store(http2)
		c.requests.Store(requests)
		c.received.Store(received)
		c.status.Store(status(p, 0))
		c.wrote.Store(received)
		c.accounted.Store(perAnswer * requests)
		if requests == 0 {
			c.patience = patience{since: l.now() - time.Second}
		}
		if http2 {
			l.http2.Add(1)
		}
		return c
	}
	quiet, old, busy := put(idle, true, 3, 4000), put(active, false, 1, 4000), put(active, true, 5000, 200_000)
	var hide []*conn
	for range 10 {
		hide = append(hide, put(active, true, 0, 600))
	}
	gone := func(c *conn) bool { p, _ := read(c.status.Load()); return p == evicted }
	own := ownGoroutines + 2*l.open() + 2*12
	l.goroutines = func() int { return own + 20 }
	l.unblock()
	if slices.ContainsFunc(hide, gone) {
		t.Error("somebody had to go although few answers are hidden")
	}
	l.goroutines = func() int { return own + 10*maxStreams }
	if !l.pressed() {
		t.Error("more may begin although many answers are hidden")
	}
	l.unblock()
	if n := len(slices.DeleteFunc(slices.Clone(hide), gone)); n > 1 {
		t.Errorf("%d of those that hide answers stay", n)
	}
	if gone(quiet) || gone(old) || gone(busy) {
		t.Error("one that hides none had to go")
	}
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
		taken int64
		want  bool
	}{
		{true, fewUnanswered, 10, 0, true},
		{true, fewUnanswered - 1, 10, 0, false},
		{true, 20, 9, 0, false},   // there is room
		{false, 20, 10, 0, false}, // HTTP/1.1 has one at a time
		{true, fewUnanswered, 10, 1, false},
		{true, 20, 10, 18, true},
		{true, 20, 10, 19, false},
	} {
		c, _ := pair(t, l)
		c.http2.Store(tc.http2)
		c.requests.Store(tc.own + tc.taken)
		c.unanswered.Store(tc.own)
		l.unanswered.Store(tc.all)
		if got := refused(c); got != tc.want {
			t.Errorf("%+v: refused %v", tc, got)
		}
		if tc.want && !refused(c) {
			t.Errorf("%+v: a refused request counts as one whose answer was taken", tc)
		}
		added := map[bool]int64{true: 0, false: 1}[tc.want]
		if c.unanswered.Load() != tc.own+added || l.unanswered.Load() != tc.all+added {
			t.Errorf("%+v: counted %d and %d", tc, c.unanswered.Load(), l.unanswered.Load())
		}
	}
}
