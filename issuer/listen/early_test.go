package listen

import (
	"bytes"
	"crypto/tls"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/keypost/keypost/issuer/listen/internal/errorlog"
	"github.com/keypost/keypost/test/authority"
)

// serveOn serves HTTPS on l, and returns how often the handler was called and what clients need to come in.
func serveOn(t *testing.T, l *listener) (called *atomic.Int64, conf *tls.Config) {
	t.Helper()
	called = new(atomic.Int64)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		called.Add(1)
		_, _ = io.WriteString(w, "ok")
	})
	root := authority.Named(t, "root", nil)
	srv := newServer(h, limits{}.withDefaults(), errorlog.New(zap.NewNop()))
	srv.TLSConfig = mustLoad(t, nil, writePair(t, t.TempDir(), "tls", root.Leaf(t, "oidc.example.com"))).TLSConfig()
	go srv.ServeTLS(l, "", "") //nolint:errcheck // it ends with l
	t.Cleanup(func() { srv.Close() })
	return called, &tls.Config{ServerName: "oidc.example.com", RootCAs: root.Pool(), NextProtos: []string{"h2"}}
}

// early is what an HTTP/2 client may send before it has heard of the server: the preface, settings that let no answer begin, and
// as many requests as it likes.
func early(t *testing.T, requests int, more ...hpack.HeaderField) []byte {
	t.Helper()
	all := bytes.Buffer{}
	all.WriteString(http2.ClientPreface)
	frames := http2.NewFramer(&all, nil)
	if err := frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	block := bytes.Buffer{}
	enc := hpack.NewEncoder(&block)
	for i := range requests {
		block.Reset()
		for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "oidc.example.com"}, {Name: ":path", Value: "/"}}, more...) {
			if err := enc.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	return all.Bytes()
}

// Requests that are read along with the preface wait for their turn, and are known to have come.
func TestEarlyRequestsWaitForTheirTurn(t *testing.T) {
	l := testListener(t, 5)
	for range atATime {
		l.turns <- struct{}{}
	}
	called, conf := serveOn(t, l)
	c, err := tls.Dial("tcp", l.Addr().String(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(early(t, 3)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // a server that does not wait would have answered
	if n := called.Load(); n > 0 {
		t.Fatalf("%d requests were begun although it is others' turn", n)
	}
	for range atATime {
		<-l.turns
	}
	eventually(t, "all were begun", func() bool { return called.Load() == 3 })
	own := l.all()[0]
	if _, received := own.sinceIdle(); received < 30 {
		t.Errorf("%d bytes are known to have come with three requests", received)
	}
	eventually(t, "the turn has gone to others", func() bool { return len(l.turns) == 0 })
}

// What comes before the first request counts for it, and what has come before later ones does not.
func TestWhatCameBeforeTheFirstRequest(t *testing.T) {
	l := testListener(t, 5)
	c, _ := pair(t, l)
	c.http2.Store(true)
	c.received.Store(600)
	for _, s := range []http.ConnState{http.StateActive, http.StateIdle, http.StateActive} {
		noteState(c, s)
	}
	if requests, received := c.sinceIdle(); requests != 0 || received != 600 {
		t.Errorf("%d requests and %d bytes, want 0 and 600", requests, received)
	}
	c.requests.Store(1)
	noteState(c, http.StateIdle)
	noteState(c, http.StateActive)
	if requests, received := c.sinceIdle(); requests != 0 || received != 0 {
		t.Errorf("after a request: %d and %d, want none", requests, received)
	}
}

// Nothing stays in memory of a connection that has ended with a request open: strangers could end as many as they like.
func TestNothingStaysOfAConnection(t *testing.T) {
	l := testListener(t, 5)
	called, conf := serveOn(t, l)
	c, err := tls.Dial("tcp", l.Addr().String(), conf)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(early(t, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request was begun", func() bool { return called.Load() == 1 })
	own := weak.Make(l.all()[0])
	_ = c.Close() // with an answer outstanding
	eventually(t, "nothing is left of it", func() bool {
		runtime.GC()
		return own.Value() == nil
	})
}

// Connections that have been idle for too long go, and no others.
func TestExpiredConnectionsGo(t *testing.T) {
	l := testListener(t, 10)
	l.idle = time.Minute
	now := l.now()
	put := func(p phase, age time.Duration) *conn {
		c, _ := pair(t, l)
		c.status.Store(status(p, now-age))
		return c
	}
	old := []*conn{put(idle, time.Minute+1), put(idle, time.Hour)}
	rest := []*conn{put(idle, time.Minute), put(active, time.Hour), put(fresh, time.Hour)}
	gone := func(c *conn) bool { p, _ := read(c.status.Load()); return p == evicted }
	l.expired = now - l.idle/16 + 1
	if l.closeExpired(now); slices.ContainsFunc(old, gone) {
		t.Error("it looks too often")
	}
	l.expired--
	l.closeExpired(now)
	if slices.ContainsFunc(rest, gone) || slices.ContainsFunc(old, func(c *conn) bool { return !gone(c) }) {
		t.Error("others have gone than those that were idle for too long")
	}
	if n := counted(t, l.evictions); n != 0 {
		t.Errorf("%v count as those that made room", n)
	}
}

// Whoever keeps a turn without reading on loses it, once nobody else gets one; one that waits for others' answers does not.
func TestTurnsEnd(t *testing.T) {
	l := testListener(t, 50)
	var all []*conn
	for range atATime {
		c, _ := pair(t, l)
		c.takeTurn()
		all = append(all, c)
	}
	keep := func(n int) {
		t.Helper()
		if l.endTurns(); len(l.turns) != n {
			t.Errorf("%d have a turn, want %d", len(l.turns), n)
		}
	}
	keep(atATime)
	all[0].turnAt.Store(int64(l.now() - 2*longestTurn))
	all[1].turnAt.Store(math.MaxInt64)
	keep(atATime - 1)
	if all[0].turn.Load() {
		t.Error("the one with the longest turn keeps it")
	}
	all[2].turnAt.Store(int64(l.now() - 2*longestTurn))
	keep(atATime - 1) // there is one to be had
	all[0].takeTurn()
	keep(atATime - 1)
	for _, c := range all {
		c.leaveTurn()
	}
	keep(0)
}

// Who has just come and asked for little is spared, however long it has waited for the processor: what its greeting took
// hides nothing. One with a single answer goes after those that let many wait, too.
func TestHonestClientsAreSpared(t *testing.T) {
	l := testListener(t, 50)
	l.mostUnanswered = 8 * maxStreams
	now := l.now()
	put := func(wrote, accounted int64, waited time.Duration) *conn {
		c, _ := pair(t, l)
		c.http2.Store(true)
		c.received.Store(2000)
		c.wrote.Store(wrote)
		c.accounted.Store(accounted)
		c.patience = patience{since: now - waited}
		c.status.Store(status(active, now-waited))
		l.http2.Add(1)
		return c
	}
	gone := func(c *conn) bool { p, _ := read(c.status.Load()); return p == evicted }
	honest := []*conn{
		put(0, 0, time.Second),                                              // whose request waits for the processor
		put(otherFrames, 0, 400*time.Millisecond),                           // who has got what comes before the answer
		put(otherFrames, perAnswer, 2*time.Second),                          // whose answer is on its way, through a slow line
		put(otherFrames+perAnswer+5*leastAnswer, perAnswer, stalledSoon/10), // whose header is longer than we reckon with
		put(otherFrames+100<<10+100<<10/4096*31, 0, stalledSoon/10),         // with a long document
	}
	honest[4].account(100 << 10)
	var hide []*conn
	for range 4 {
		hide = append(hide, put(otherFrames+maxStreams*leastAnswer, 0, time.Millisecond))
	}
	stuck := put(0, 0, time.Millisecond) // nothing of it gets out
	stuck.writeAt.Store(int64(now - 2*stalledSoon))
	hide = append(hide, stuck)
	own := ownGoroutines + 2*l.open() + moreForHTTP2*l.open()
	l.goroutines = func() int { return own + 10*maxStreams }
	l.unblock()
	if slices.ContainsFunc(honest, gone) || slices.ContainsFunc(hide, func(c *conn) bool { return !gone(c) }) {
		t.Errorf("of the honest ones some are gone: %v; of those that hide answers: %v", slices.ContainsFunc(honest, gone), slices.ContainsFunc(hide, gone))
	}

	// Behind proper requests, whose answers account for all that was written, as much as was written or more: when no other is
	// known to hide any, and the server waits for it.
	for _, accounted := range []int64{otherFrames, 5 * perAnswer} {
		behind, known := put(otherFrames, accounted, 2*hidingSoon), put(otherFrames+12*leastAnswer, 0, 0)
		behind.unanswered.Store(8)
		own = ownGoroutines + 2*l.open() + moreForHTTP2*l.open()
		l.goroutines = func() int { return own + 10*maxStreams }
		if l.unblock(); gone(behind) || !gone(known) {
			t.Errorf("the one of which nothing is known is gone: %v; the one that is known to hide some: %v", gone(behind), gone(known))
		}
		noteState(known, http.StateClosed)
		for _, c := range honest { // take what they wait for
			c.patience.since = now
			c.wrote.Store(0)
		}
		if l.unblock(); !gone(behind) || slices.ContainsFunc(honest, gone) {
			t.Errorf("the one that hides answers behind others is gone: %v; of the honest ones: %v", gone(behind), slices.ContainsFunc(honest, gone))
		}
	}

	l.goroutines = func() int { return 0 }
	one := put(0, 0, 4*stalledSoon)
	one.unanswered.Store(1)
	var stall []*conn
	for range 5 {
		c := put(0, 0, 2*stalledSoon)
		c.unanswered.Store(maxStreams)
		stall = append(stall, c)
	}
	l.unanswered.Store(6*maxStreams + l.mostUnanswered/2) // more than these have
	l.unblock()
	if gone(one) || slices.ContainsFunc(stall, func(c *conn) bool { return !gone(c) }) {
		t.Error("the one with a single answer had to go for those with many")
	}
}

// Answers that net/http gives by itself show in what it has written, and those of the handler do not.
func TestHiddenAnswersShow(t *testing.T) {
	const requests = 5
	begin := func(ready []byte) (*conn, *tls.Conn) {
		l := testListener(t, 5)
		_, conf := serveOn(t, l)
		c, err := tls.Dial("tcp", l.Addr().String(), conf)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go io.Copy(io.Discard, c) //nolint:errcheck // it ends with the connection
		if _, err := c.Write(ready); err != nil {
			t.Fatal(err)
		}
		eventually(t, "there is a connection", func() bool { return len(l.all()) == 1 })
		return l.all()[0], c
	}
	own, _ := begin(early(t, requests, hpack.HeaderField{Name: "te", Value: "x"}))
	eventually(t, "the answers of net/http show", func() bool { return own.hides(own.of.now()) >= requests })

	honest, _ := begin(early(t, requests)) // none of whose answers can begin its body
	eventually(t, "the answers of the handler wait", func() bool { return honest.unanswered.Load() == requests })
	time.Sleep(stalledSoon / 5) // all that is written before the client is ready has been written
	if wrote, accounted := honest.wrote.Load(), honest.accounted.Load(); wrote == 0 || wrote > accounted+otherFrames {
		t.Errorf("%d bytes were written, want %d for the answers of the handler and %d at most", wrote, accounted, otherFrames)
	}
}

// While connections that were closed for their hidden answers end, nobody else has to go in their place. Those go first that
// have let the server wait for longest.
func TestNobodyGoesForThoseWhoLeave(t *testing.T) {
	l := testListener(t, 50)
	l.mostUnanswered = 8 * maxStreams
	now := l.now()
	var all []*conn
	for i := range 12 {
		c, _ := pair(t, l)
		c.http2.Store(true)
		c.wrote.Store(otherFrames + maxStreams*leastAnswer)
		waited := time.Duration(1+(i*5)%12) * time.Second // in no order
		c.status.Store(status(active, now-waited))
		c.patience = patience{since: now - waited}
		c.requests.Store(int64(waited / time.Second * 100)) // whose answers were taken says nothing of those that are hidden
		l.http2.Add(1)
		all = append(all, c)
	}
	ageOf := func(c *conn) int { return 1 + (slices.Index(all, c)*5)%12 }
	own := ownGoroutines + 2*len(all) + moreForHTTP2*len(all)
	l.goroutines = func() int { return own + 3*maxStreams } // before the first has ended
	l.unblock()
	l.unblock()
	for _, c := range all {
		if p, _ := read(c.status.Load()); (p == evicted) != (ageOf(c) > 10) {
			t.Errorf("one of %d s: gone is %v", ageOf(c), p == evicted)
		}
	}
	if n := l.leaving.Load(); n != 2*maxStreams {
		t.Errorf("%d answers are on their way, want those of two connections", n)
	}
	for _, c := range all {
		noteState(c, http.StateClosed)
	}
	if n := l.leaving.Load(); n != 0 {
		t.Errorf("%d answers are on their way after the end", n)
	}
}
