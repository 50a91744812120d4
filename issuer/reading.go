package issuer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

const (
	// patience is how long a key set may take to be read and judged before it counts as unreadable. The reading goes on
	// by itself, and what it finds is published then.
	patience = 2 * time.Second
	// maxSlow bounds how many readings may go on like that: each keeps memory, and maybe a thread.
	maxSlow = 64
	// readTimeout ends the context of a reading, for sources that heed it.
	readTimeout = 30 * time.Second
	// stall is how long no reading of a batch may end before those that have ended are published without the rest.
	stall = 250 * time.Millisecond
)

// found is one key set as the store returned it.
type found struct {
	*lastgood.Candidate
	revision keystore.Revision
	version  *version // nil when it could not be read
	absent   bool
}

func unread(n keystore.Name, why *lastgood.Rejection) found {
	return found{Candidate: &lastgood.Candidate{Name: n, Rejected: why}}
}

// take reads key sets and publishes them: all in one batch, unless some take long. listed is nil when they are not all
// that a complete listing lacks. The error is that of ctx, and then nothing is concluded: an interrupted reading would
// look like a thousand unreadable key sets.
func (p *Publisher) take(ctx context.Context, names []keystore.Name, listed map[keystore.Name]keystore.Revision) error {
	results := p.load(ctx, names)
	stalled := time.NewTicker(stall)
	defer stalled.Stop()
	var all []found
	for {
		select {
		case f, more := <-results:
			if !more {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if !p.began() {
					// The first reading of many key sets leaves more garbage than what is kept of them. It is given back
					// to the system before this process counts as ready: nothing that follows needs as much.
					debug.FreeOSMemory()
				}
				p.publish(all, listed)
				return nil
			}
			// What could not be read has no revision of its own; an older one than it was read at only costs a reading.
			if rev, ok := listed[f.Name]; ok && (f.version == nil || f.revision == rev) {
				f.revision = rev // of two equal texts one is enough
			}
			all = append(all, f)
			stalled.Reset(stall)
		case <-stalled.C:
			// Before everything was read once, nobody knows who else claims a URL.
			if len(all) > 0 && p.began() && ctx.Err() == nil {
				p.publish(all, nil)
				all = nil
			}
		}
	}
}

// load reads key sets, several at a time and in no order, so that it is not always the same ones that wait for a slow
// one.
func (p *Publisher) load(ctx context.Context, names []keystore.Name) <-chan found {
	results := make(chan found, len(names))
	go func() {
		defer close(results)
		var g errgroup.Group
		g.SetLimit(runtime.GOMAXPROCS(0) + 2)
		for _, i := range rand.Perm(len(names)) { //nolint:gosec // any order does
			g.Go(func() error {
				if f, ok := p.read(ctx, names[i]); ok {
					results <- f
				}
				return nil
			})
		}
		_ = g.Wait() // no reading returns an error
	}()
	return results
}

// read reads one key set and waits for it only so long. It returns false when there is nothing to conclude: the key set
// is being read already, or ctx is done.
func (p *Publisher) read(ctx context.Context, n keystore.Name) (found, bool) {
	begun, full := p.readings.begin(n)
	switch {
	case full:
		return unread(n, lastgood.Reject(lastgood.ReasonUnreadable, "it was not tried, since %d readings of others take too long", maxSlow)), true
	case !begun:
		return found{}, false
	}
	done := make(chan found, 1)
	go func() { done <- p.readNow(ctx, n) }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case f := <-done:
		p.readings.end(n)
		return f, ctx.Err() == nil
	case <-ctx.Done():
		go func() {
			<-done
			p.readings.end(n)
		}()
		return found{}, false
	case <-timer.C:
		p.readings.slow(n)
		go func() { p.late(ctx, <-done) }()
		return unread(n, lastgood.Reject(lastgood.ReasonUnreadable, "its reading has taken longer than %v and goes on", patience)), true
	}
}

// late publishes what a slow reading has found, and reads again when there was reason to meanwhile.
func (p *Publisher) late(ctx context.Context, f found) {
	again := p.readings.end(f.Name)
	if ctx.Err() != nil {
		return
	}
	p.publish([]found{f}, nil)
	if !again {
		return
	}
	if f, ok := p.read(ctx, f.Name); ok {
		p.publish([]found{f}, nil)
	}
}

// readNow reads one key set and judges it against the served version, which may take as long as the document is large.
func (p *Publisher) readNow(ctx context.Context, n keystore.Name) found {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s, rev, err := p.c.Source.Load(ctx, n)
	var v *version
	if err == nil {
		v, err = newVersion(s, p.c.Cache)
	}
	if err != nil {
		f := unread(n, lastgood.RejectError(err))
		f.revision, f.absent = rev, f.Rejected == nil
		return f
	}
	c := lastgood.NewCandidate(n, &v.Summary, p.served(n).summary())
	c.Rejected = p.admission.Admit(s)
	return found{Candidate: c, revision: rev, version: v}
}

func (p *Publisher) served(n keystore.Name) *version {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e := p.entries[n]; e != nil {
		return e.served
	}
	return nil
}

// readings are those under way: at most one of each key set, so that one that hangs is not read again at every poll, and
// that an older version never comes after a newer one.
type readings struct {
	mu      sync.Mutex
	under   map[keystore.Name]*reading
	slowing int // how many of them take long
}

type reading struct {
	slow  bool
	again bool // somebody wanted another one meanwhile
}

// begin reports whether a reading may begin. If not, one of the same key set is under way, or, with full, too many others
// take long.
func (r *readings) begin(n keystore.Name) (begun, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if current := r.under[n]; current != nil {
		current.again = true
		return false, false
	}
	if r.slowing >= maxSlow {
		return false, true
	}
	if r.under == nil {
		r.under = map[keystore.Name]*reading{}
	}
	r.under[n] = &reading{}
	return true, false
}

func (r *readings) slow(n keystore.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under[n].slow = true
	r.slowing++
}

// end reports whether somebody wanted to read the key set meanwhile.
func (r *readings) end(n keystore.Name) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.under[n]
	delete(r.under, n)
	if ended.slow {
		r.slowing--
	}
	return ended.again
}
