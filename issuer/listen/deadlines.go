package listen

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// sweepEvery is how late a connection may learn that its deadline has passed.
const sweepEvery = 250 * time.Millisecond

// deadlines keeps the deadlines of all connections of a listener. net/http sets five for each request, and nearly
// none of them is ever reached: as timers of the runtime they cost a twentieth of what a whole request costs. Here
// they are noted, and looked at a few times a second.
type deadlines struct {
	began time.Time    // what instants count from, on the monotonic clock
	now   atomic.Int64 // the instant of the last look
	date  atomic.Pointer[[]string]

	mu    sync.Mutex
	conns map[*limitedConn]struct{}
}

func newDeadlines() *deadlines {
	d := &deadlines{began: time.Now(), conns: map[*limitedConn]struct{}{}}
	d.now.Store(1)
	d.setDate(d.began)
	return d
}

// setDate spells the Date of RFC 9110, section 6.6.1, for the answers of the next second.
func (d *deadlines) setDate(now time.Time) {
	text := now.UTC().Format(http.TimeFormat)
	if last := d.date.Load(); last == nil || (*last)[0] != text {
		d.date.Store(&[]string{text})
	}
}

// dated answers with the Date of the last look. net/http would read the clock and spell the time for each answer.
func (d *deadlines) dated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = *d.date.Load()
		h.ServeHTTP(w, r)
	})
}

// instant returns t in nanoseconds since the listener was opened, 1 for all that was before, and 0 for no time.
func (d *deadlines) instant(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, int64(t.Sub(d.began)))
}

func (d *deadlines) add(c *limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = struct{}{}
}

func (d *deadlines) remove(c *limitedConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// watch looks until the listener is closed and its last connection is gone.
func (d *deadlines) watch(closed <-chan struct{}) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for now := range tick.C {
		d.setDate(now)
		left := d.sweep(d.instant(now))
		select {
		case <-closed:
			if left == 0 {
				return
			}
		default:
		}
	}
}

func (d *deadlines) sweep(now int64) (left int) {
	d.now.Store(now)
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.read.expire(now)
		c.write.expire(now)
	}
	return len(d.conns)
}

// deadline is that of one direction of a connection. What is usual, to note one that lies ahead, takes no lock: it
// writes at and then reads told, whereas expire writes told and then reads at, so that at least one of them sees what
// the other did.
type deadline struct {
	tell func(time.Time) error // sets it in the runtime

	at   atomic.Int64 // its instant, 0 for none
	told atomic.Bool  // the runtime has one that is over

	mu sync.Mutex // held while the runtime is told
}

// set notes an instant. One that is over takes effect at once: net/http ends a read under way with it.
func (d *deadline) set(at, now int64) error {
	d.at.Store(at)
	if !d.over(now) && !d.told.Load() {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	over := d.over(now)
	d.told.Store(over)
	if over {
		return d.tell(time.Unix(1, 0))
	}
	return d.tell(time.Time{})
}

func (d *deadline) over(now int64) bool {
	at := d.at.Load()
	return at != 0 && at <= now
}

func (d *deadline) expire(now int64) {
	if !d.over(now) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told.Load() {
		return
	}
	d.told.Store(true)
	if !d.over(now) { // it has moved on meanwhile
		d.told.Store(false)
		return
	}
	_ = d.tell(time.Unix(1, 0)) // it fails on a connection that is closed already
}

// SetReadDeadline, SetWriteDeadline and SetDeadline are those of net.Conn, kept up to sweepEvery late.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	return c.read.set(c.of.deadlines.instant(t), c.of.deadlines.now.Load())
}

// SetWriteDeadline is part of net.Conn.
func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	return c.write.set(c.of.deadlines.instant(t), c.of.deadlines.now.Load())
}

// SetDeadline is part of net.Conn.
func (c *limitedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
