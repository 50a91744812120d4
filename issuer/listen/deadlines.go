package listen

import (
	"errors"
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
	now atomic.Pointer[time.Time] // of the last look

	mu    sync.Mutex
	conns map[*limitedConn]struct{}
}

func newDeadlines() *deadlines {
	d := &deadlines{conns: map[*limitedConn]struct{}{}}
	now := time.Now()
	d.now.Store(&now)
	return d
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
		left := d.sweep(now)
		select {
		case <-closed:
			if left == 0 {
				return
			}
		default:
		}
	}
}

func (d *deadlines) sweep(now time.Time) (left int) {
	d.now.Store(&now)
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.read.expire(now)
		c.write.expire(now)
	}
	return len(d.conns)
}

// deadline is that of one direction of a connection.
type deadline struct {
	tell func(time.Time) error // sets it in the runtime

	mu   sync.Mutex
	at   time.Time // zero for none
	told bool      // the runtime has one that is over
}

// set notes t. One that is over takes effect at once: net/http ends a read under way with it.
func (d *deadline) set(t, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	over := !t.IsZero() && !t.After(now)
	if !over && !d.told {
		return nil
	}
	d.told = over
	if over {
		return d.tell(t)
	}
	return d.tell(time.Time{})
}

func (d *deadline) expire(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.told && !d.at.IsZero() && !d.at.After(now) {
		d.told = true
		_ = d.tell(now) // it fails on a connection that is closed already
	}
}

// SetReadDeadline, SetWriteDeadline and SetDeadline are those of net.Conn, kept up to sweepEvery late.
func (c *limitedConn) SetReadDeadline(t time.Time) error {
	return c.read.set(t, *c.of.deadlines.now.Load())
}

// SetWriteDeadline is part of net.Conn.
func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	return c.write.set(t, *c.of.deadlines.now.Load())
}

// SetDeadline is part of net.Conn.
func (c *limitedConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
