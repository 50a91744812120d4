package listen

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each of these has been measured, with test/attack, and shows in nothing else: who changes one measures again.
func TestMeasuredFigures(t *testing.T) {
	for name, tc := range map[string]struct{ got, want any }{
		"stalledSoon":    {stalledSoon, 500 * time.Millisecond},
		"fewBeside":      {fewBeside, 4},
		"hidingSoon":     {hidingSoon, 250 * time.Millisecond},
		"thriftyPercent": {thriftyPercent, 25},
	} {
		if tc.got != tc.want {
			t.Errorf("%s is %v, want %v", name, tc.got, tc.want)
		}
	}
}

// An honest client may take as long as it does on a slow line, and nobody much longer. The bounds between which a figure may lie are the line's;
// the figures themselves were measured with test/attack: who changes one measures again.
func TestHowLongAClientMayTake(t *testing.T) {
	l := testListener(t, 10)
	now := l.now()
	for name, tc := range map[string]struct {
		phase       phase
		received    int64
		stays, goes time.Duration
	}{
		"a handshake that loses a packet, which is sent again after a second (RFC 6298)": {fresh, 1, 1500 * time.Millisecond, 3 * time.Second},
		"its first packet, half a round trip after the connection's last":                {fresh, 0, 200 * time.Millisecond, 500 * time.Millisecond},
		"its next request, on its way":                                                   {idle, 1, 200 * time.Millisecond, 500 * time.Millisecond},
		"to take an answer of which a packet is lost":                                    {active, 1, 1500 * time.Millisecond, 3 * time.Second},
	} {
		c, _ := pair(t, l)
		c.received.Store(tc.received)
		for waited, want := range map[time.Duration]bool{tc.stays: false, tc.goes: true} {
			c.patience = patience{since: now - waited}
			c.status.Store(status(tc.phase, now-waited))
			if _, found := c.judge(now); found != want {
				t.Errorf("%s: after %v it may have to make room: %v", name, waited, found)
			}
		}
	}
}

// What connections hold leaves room for a thousand answers that wait, and with a thousand connections and the garbage of all of it no more is taken
// over idle than test/attack allows.
func TestWhatConnectionsMayHold(t *testing.T) {
	if mostHeld < 1000*heldPerStream {
		t.Errorf("%d answers may wait", mostHeld/heldPerStream)
	}
	if most := (1000*inProcess + mostHeld) * (100 + thriftyPercent) / 100; most > 128<<20 {
		t.Errorf("connections may take %d MiB", most>>20)
	}
}

// Go's own client is far from being bulky, and one with a header of 8 KiB is.
func TestWhatIsBulky(t *testing.T) {
	seen := make(chan int64, 1)
	s := startSite(t, Config{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, received := r.Context().Value(connKey{}).(*conn).sinceIdle()
		seen <- received
	})})
	for size, want := range map[int]bool{1 << 10: false, 8 << 10: true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X", strings.Repeat("x", size))
		resp, err := (&http.Transport{TLSClientConfig: s.clientTLS(), DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if received := <-seen; received > bulk != want {
			t.Errorf("a header of %d bytes: %d with the handshake, of which %d are bulky", size, received, bulk)
		}
	}
}

// Half of what the process itself does not need, an eighth where there is little, and never more than mostHeld.
func TestForConnections(t *testing.T) {
	for limit, want := range map[int64]int64{384 << 20: mostHeld, 1 << 40: mostHeld, 96 << 20: 24 << 20, 64 << 20: 8 << 20, 16 << 20: 2 << 20} {
		if got := forConnections(limit); got != want {
			t.Errorf("of %d MiB connections may hold %d MiB, want %d", limit>>20, got>>20, want>>20)
		}
	}
}

// What is live counts from its part of the limit on, and neither before nor only later.
func TestTooFull(t *testing.T) {
	for live, want := range map[int64]int{70 << 20: 0, 70<<20 + 1: 1} {
		l := testListener(t, 5)
		c, _ := pair(t, l)
		c.status.Store(status(idle, 0))
		if got := l.relieveOnce(memory{live: live, limit: 100 << 20}); got != want {
			t.Errorf("%d live of 100 MiB: %d were closed, want %d", live, got, want)
		}
	}
}

// Those that a search has found and that have done something since stay, and the next one goes.
func TestEvictNextPassesOver(t *testing.T) {
	l := testListener(t, 5)
	var all []*conn
	for range 3 {
		c, _ := pair(t, l)
		c.status.Store(status(idle, 0))
		all = append(all, c)
		l.victims = append(l.victims, victim{conn: c, status: c.status.Load()})
	}
	all[0].status.Store(status(active, 0)) // one that was stalled, and takes its answer again
	l.victims[0].status = all[0].status.Load()
	all[0].patience = newPatience(l.now())
	if !l.evictNext() || len(l.victims) != 1 {
		t.Fatalf("none has gone, or too many were passed over: %d left", len(l.victims))
	}
	for i, want := range []phase{active, evicted, idle} {
		if p, _ := read(all[i].status.Load()); p != want {
			t.Errorf("connection %d is in phase %d, want %d", i, p, want)
		}
	}
	all[2].enter(active)
	if l.evictNext() {
		t.Error("a connection with a request has gone")
	}
}

// What a search has found is not used for long: by then another one may have to go first.
func TestVictimsAreNotKept(t *testing.T) {
	l := testListener(t, 5)

	for range 3 {
		c, _ := pair(t, l)
		c.status.Store(status(idle, 0))

	}
	if !l.evict() || len(l.victims) != 2 {
		t.Fatalf("%d were found besides the one that went, want 2", len(l.victims))
	}
	slow, _ := pair(t, l)
	slow.status.Store(status(fresh, 0))
	l.looked -= lookAgain
	if !l.evict() {
		t.Fatal("none has gone")
	}
	if p, _ := read(slow.status.Load()); p != evicted {
		t.Error("an idle connection went before a slow handshake that came after the last search")
	}
}

// One that has ended by itself makes no room, and is not counted.
func TestCloseOfOneThatHasEnded(t *testing.T) {
	l := testListener(t, 5)
	c, _ := pair(t, l)
	c.status.Store(status(idle, 0))
	v := victim{conn: c, status: c.status.Load()}
	_ = c.Close() // that is the point
	if l.close(v, "idle") || counted(t, l.evictions) != 0 {
		t.Error("it counts as evicted")
	}
}

// A second listener leaves the garbage collector alone and sees no answers in the goroutines of the first.
func TestSecondListener(t *testing.T) {
	l := testListener(t, 5)
	l.thrift.set = func(int) int { t.Error("it tells the garbage collector something"); return 0 }
	l.goroutines = func() int { return 10_000 }
	l.beSecond()
	if l.thrift.begin(l.now()); l.hidden() > 0 {
		t.Errorf("%d answers are hidden", l.hidden())
	}
}

// Every secret opens, in whatever order they are, and nothing else does.
func TestEverySecretOpens(t *testing.T) {
	c := ShieldConfig{Header: "X-Origin-Secret"}
	secrets := []string{strings.Repeat("a", 16), strings.Repeat("b", 16), strings.Repeat("c", 16)}
	for _, s := range secrets {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		c.SecretFiles = append(c.SecretFiles, file)
	}
	shield, err := NewShield(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if !shield.knows(s) {
			t.Errorf("%s does not open", s)
		}
	}
	for _, s := range []string{"", strings.Repeat("d", 16), secrets[0] + "a", secrets[0][1:]} {
		if shield.knows(s) {
			t.Errorf("%q opens", s)
		}
	}
}

// flushes calls a function when the answer is sent.
type flushes struct {
	*httptest.ResponseRecorder
	then func()
}

func (f flushes) Flush() { f.then() }

// What an HTTP/2 client has sent is let go while it does not take the answer: 16 KiB of each request, and what becomes of them.
func TestRequestIsLetGo(t *testing.T) {
	for _, major := range []int{1, 2} {
		r := httptest.NewRequest(http.MethodGet, "https://oidc.example.com/prod", nil)
		r.ProtoMajor = major
		r.Header.Set("X", "y")
		answered, flushed := false, false
		h := front(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			answered = r.Header.Get("X") == "y" && r.URL.Path == "/prod"
		}))
		h.ServeHTTP(flushes{httptest.NewRecorder(), func() {
			if flushed = true; r.Header != nil || r.URL != nil || r.RequestURI != "" {
				t.Errorf("HTTP/%d: %v %v %q are held while the answer waits", major, r.Header, r.URL, r.RequestURI)
			}
		}}, r)
		if !answered || flushed != (major == 2) {
			t.Errorf("HTTP/%d: the handler has seen the request: %v; the answer was waited for: %v", major, answered, flushed)
		}
	}
}
