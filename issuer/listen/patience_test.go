package listen

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestPatience(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		happens func(p *patience)
		want    time.Duration // after 20 s
	}{
		"nothing is taken":               {func(p *patience) {}, 10 * s},
		"the server works":               {func(p *patience) { p.work(11 * s) }, 0},
		"it worked for 3 s":              {func(p *patience) { p.work(11 * s); p.rest(14 * s) }, 7 * s},
		"on two at a time":               {func(p *patience) { p.work(11 * s); p.work(12 * s); p.rest(13 * s); p.rest(14 * s) }, 7 * s},
		"another request each second":    {func(p *patience) { p.work(11 * s); p.rest(11 * s); p.work(12 * s); p.rest(12 * s) }, 10 * s},
		"a byte is taken":                {func(p *patience) { p.took(1, 19*s) }, 10*s - s/8192},
		"bytes are taken":                {func(p *patience) { p.took(8192, 12*s) }, 9 * s},
		"many bytes are not saved up":    {func(p *patience) { p.took(1<<30, 12*s) }, 8 * s},
		"many bytes while it works":      {func(p *patience) { p.work(12 * s); p.took(1<<30, 14*s); p.rest(15 * s) }, 5 * s},
		"idle":                           {func(p *patience) { p.stop(13 * s) }, 3 * s},
		"idle, and asks again at once":   {func(p *patience) { p.stop(13 * s); p.start(13 * s) }, 10 * s},
		"idle for a while":               {func(p *patience) { p.stop(12 * s); p.start(18 * s) }, 4*s - 6*s/16},
		"idle for long":                  {func(p *patience) { p.stop(11 * s); p.start(19 * s); p.stop(20 * s); p.start(20 * s) }, 2*s - 8*s/16},
		"idle for longer than it waited": {func(p *patience) { p.took(1<<30, 12*s); p.stop(12 * s); p.start(19 * s) }, 1 * s},
	} {
		p := &patience{since: 10 * s}
		tc.happens(p)
		if got := p.waited(20 * s); got != tc.want {
			t.Errorf("%s: waited %v, want %v", name, got, tc.want)
		}
	}
	p := newPatience(10 * s)
	p.start(18 * s)
	if got := p.waited(20 * s); got != 2*s {
		t.Errorf("from its first request on: waited %v", got)
	}
}

// A client that neither takes its answer nor sends the body that it has promised makes room; one whose request the
// server works on, or that takes its answer slowly, does not.
func TestStalledConnectionsMakeRoom(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/works":
			select {
			case <-time.After(3 * stalledAfter):
			case <-r.Context().Done():
			}
		case "/big":
			_, _ = io.WriteString(w, strings.Repeat("x", 8<<20))
		}
		_, _ = io.WriteString(w, "ok")
	})
	for name, tc := range map[string]struct {
		request string
		reads   int // bytes, each tenth of a second
		want    bool
	}{
		"takes nothing":    {"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", 0, true},
		"takes its answer": {"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", 8 << 10, false},
		"sends no body":    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", 0, true},
		"is worked on":     {"GET /works HTTP/1.1\r\nHost: a\r\n\r\n", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metrics := prometheus.NewRegistry()
			address, _ := start(t, Config{Handler: handler, MaxConnections: 1, limits: limits{read: 30 * time.Second, write: 30 * time.Second}, Metrics: metrics})
			first := connect(t, address, tc.request)
			go func() {
				for tc.reads > 0 {
					if _, err := io.CopyN(io.Discard, first, int64(tc.reads)); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
			time.Sleep(100 * time.Millisecond)
			second := connect(t, address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			_ = second.SetReadDeadline(time.Now().Add(2 * stalledAfter))
			_, err := bufio.NewReader(second).ReadString('\n')
			if got := err == nil; got != tc.want || !got && !isTimeout(err) {
				t.Errorf("made room: %v (%v), want %v", got, err, tc.want)
			}
			first.Close()
		})
	}
}

func connect(t *testing.T, address, request string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}
