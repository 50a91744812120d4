package issuer

import (
	"context"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

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
	at       uint64 // its place among all that was found: a batch may be published after one with newer results
}

func unread(n keystore.Name, why *lastgood.Rejection) found {
	return found{Candidate: &lastgood.Candidate{Name: n, Rejected: why}}
}

// take reads key sets and publishes them: all in one batch, unless some take long. listed is nil when they are not all
// that a complete listing lacks. The error is that of ctx, and then nothing is concluded: an interrupted reading would
// look like a thousand unreadable key sets.
func (p *Publisher) take(ctx context.Context, names []keystore.Name, listed map[keystore.Name]keystore.Revision) error {
	p.readings.want(names, 1)
	defer p.readings.want(names, -1)
	results := p.load(ctx, names)
	stalled := time.NewTicker(stall)
	defer stalled.Stop()
	var all []found
	for {
		select {
		case f, more := <-results:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !more {
				p.publish(all, listed)
				return nil
			}
			// What could not be read has no revision of its own; an older one than it was read at only costs a reading.
			if rev, ok := listed[f.Name]; ok && (f.version == nil || f.revision == rev) {
				f.revision = rev // of two equal texts one is enough
			}
			all = append(all, f)
			stalled.Reset(stall)
		case <-ctx.Done():
			return ctx.Err()
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
// one. The results come until the channel is closed. It holds them all, so that no reading waits for who receives them.
func (p *Publisher) load(ctx context.Context, names []keystore.Name) <-chan found {
	l := &loader{p: p, todo: make(chan keystore.Name, len(names)), results: make(chan found, len(names))}
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // any order does
		l.todo <- names[i]
	}
	close(l.todo)
	l.left.Add(len(names))
	for range min(runtime.GOMAXPROCS(0)+2, len(names)) {
		go l.work(ctx)
	}
	go func() {
		l.left.Wait()
		close(l.results)
	}()
	return l.results
}

// loader reads several key sets, with goroutines that each read one after the other.
type loader struct {
	p       *Publisher
	todo    chan keystore.Name
	results chan found
	left    sync.WaitGroup // of names without a result
}

// work reads key sets until none is left to begin, or until one takes long: then another goroutine goes on with the
// others.
func (l *loader) work(ctx context.Context) {
	for n := range l.todo {
		if ctx.Err() != nil {
			l.left.Done() // nobody waits for the results any more
		} else if l.read(ctx, n) {
			return
		}
	}
}

// read reads one key set. If that takes long, the result is that it cannot be read, and what the reading finds is
// published when it ends. There is no result if the key set is being read already: it is read again then.
func (l *loader) read(ctx context.Context, n keystore.Name) (late bool) {
	p := l.p
	begun, full := p.readings.begin(n)
	if full {
		l.results <- unread(n, lastgood.Reject(lastgood.ReasonUnreadable, "it was not tried, since %d readings of others take too long", maxSlow))
	}
	if begun == nil {
		l.left.Done()
		return false
	}
	watch := time.AfterFunc(patience, func() {
		if p.readings.slow(n, begun) {
			f := unread(n, lastgood.Reject(lastgood.ReasonUnreadable, "its reading has taken longer than %v and goes on", patience))
			f.at = p.readings.next()
			l.results <- f
			l.left.Done()
			l.work(ctx)
		}
	})
	f := p.readNow(ctx, n)
	watch.Stop()
	late, again := p.readings.end(n)
	f.at = p.readings.next()
	if !late {
		l.results <- f
		l.left.Done()
	}
	if late || again {
		go p.follow(ctx, f, late, again)
	}
	return late
}

// follow publishes what a slow reading has found, and reads again what somebody wanted to read meanwhile. Both wait until
// everything was read once: before, nobody knows who else claims a URL.
func (p *Publisher) follow(ctx context.Context, f found, late, again bool) {
	select {
	case <-p.readOnce:
	case <-ctx.Done():
		return
	}
	if late {
		p.publish([]found{f}, nil)
	}
	if again {
		_ = p.take(ctx, []keystore.Name{f.Name}, nil) // the error is that of ctx
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
	slowing int                   // how many of them take long
	wanted  map[keystore.Name]int // by those that will publish what they find, whether it was begun or not
	ended   uint64
}

type reading struct {
	slow  bool
	again bool // somebody wanted another one meanwhile
}

// want notes that by more want to read key sets, or fewer.
func (r *readings) want(names []keystore.Name, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted == nil {
		r.wanted = make(map[keystore.Name]int, len(names))
	}
	for _, n := range names {
		if r.wanted[n] += by; r.wanted[n] == 0 {
			delete(r.wanted, n)
		}
	}
}

// all returns the key sets that are being read, or will be.
func (r *readings) all() []keystore.Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(r.wanted)), maps.Keys(r.under))
}

// next returns the place of a result among all.
func (r *readings) next() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	return r.ended
}

// begin returns a reading that may begin. It returns nil if one of the same key set is under way, or, with full, if too
// many others take long.
func (r *readings) begin(n keystore.Name) (begun *reading, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if current := r.under[n]; current != nil {
		current.again = true
		return nil, false
	}
	if r.slowing >= maxSlow {
		return nil, true
	}
	if r.under == nil {
		r.under = map[keystore.Name]*reading{}
	}
	begun = &reading{}
	r.under[n] = begun
	return begun, false
}

// slow notes that a reading takes long, and reports whether it is still under way.
func (r *readings) slow(n keystore.Name, begun *reading) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under[n] != begun {
		return false
	}
	begun.slow = true
	r.slowing++
	return true
}

// end reports whether the reading took long, and whether somebody wanted to read the key set meanwhile.
func (r *readings) end(n keystore.Name) (slow, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := r.under[n]
	delete(r.under, n)
	if ended.slow {
		r.slowing--
	}
	return ended.slow, ended.again
}
