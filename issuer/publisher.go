package issuer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Config is what a Publisher needs. Source and Log are required.
type Config struct {
	Source     keystore.Reader
	Patterns   []Pattern      // which key set may have which issuer URL; none = every URL is refused
	Cache      keystore.Cache // lifetimes for key sets whose policy has none; zero = keystore.DefaultCache
	Dev        bool           // serve development key sets too
	AllowEmpty bool           // be ready although there is nothing to serve
	Poll       time.Duration  // how often everything is listed, beside the watch; zero = 10 s
	Log        *zap.Logger

	// Refused, if not nil, returns why a mirror that fills the source did not copy the stored versions of key sets, for the report.
	Refused func() map[keystore.Name]keystore.Reason

	// FirstRead, if not nil, is called once: when everything has been read for the first time, before it is served.
	FirstRead func()
}

const (
	defaultPoll = 10 * time.Second
	// listPatience is how long a listing may take before the store counts as one that cannot be listed.
	listPatience = 10 * time.Second
)

// Publisher turns what a store holds into snapshots. The last good version of each key set stays through whatever
// happens to the store; what is rejected or missing shows in the log, the metrics and the report.
//
// Nothing that takes long happens while somebody who asks for the state has to wait: key sets are read and judged
// without the lock that Ready, Report and Collect take, and each is read by itself, so that one that takes long holds up
// no other.
type Publisher struct {
	c         Config
	admission Admission
	current   atomic.Pointer[snapshot]
	progress  atomic.Pointer[progress]
	listing   atomic.Bool // a listing is under way
	readings  readings
	readOnce  chan struct{} // closed when everything was listed and read once

	turn sync.Mutex // held by the one batch that is being judged. Only its holder changes what mu guards, but for failing

	mu       sync.RWMutex // guards what follows; held for as long as it takes to assign it or to copy it
	entries  map[keystore.Name]*entry
	complete time.Time // when the last complete listing was taken
	first    time.Time // when the first one was
	failing  bool      // the last listing failed (so that one line is logged per change of state)

	conflicts int // entries that are rejected for a URL of another key set
}

// entry is what is known of one key set. It is immutable.
type entry struct {
	revision keystore.Revision   // of the stored version that was looked at last; empty when there is none
	served   *version            // the last good one; nil when there was none
	rejected *lastgood.Rejection // why the stored version is not the served one, or that there is none; nil when it is served
	at       uint64              // the place of that result among all
}

// NewPublisher returns a Publisher that serves nothing yet.
func NewPublisher(c Config) *Publisher {
	if c.Cache == (keystore.Cache{}) {
		c.Cache = keystore.DefaultCache()
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	p := &Publisher{c: c, admission: Admission{Patterns: c.Patterns, Dev: c.Dev}, entries: map[keystore.Name]*entry{}, readOnce: make(chan struct{})}
	p.current.Store(&snapshot{})
	p.progress.Store(&progress{})
	return p
}

// Refresh lists the store, reads what has changed and publishes it. An error means that the listing failed, and changes
// nothing else. It must not run beside Run, which refreshes too: of two listings the older one could be taken last.
func (p *Publisher) Refresh(ctx context.Context) error {
	listed, err := p.list(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // a stop is no fault of the store
	}
	p.noteListing(err)
	if err != nil {
		p.publish(nil, nil) // time has passed, which may end the waiting for a key set that cannot be served
		return fmt.Errorf("list key sets: %w", err)
	}
	return p.take(ctx, p.changed(listed), listed)
}

// list is a listing of the store that is waited for only so long. One that hangs goes on by itself, and none is begun
// beside it: polls must not pile up. Its result is not used, since key sets may have been published meanwhile that it has
// not seen.
func (p *Publisher) list(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	type result struct {
		listed map[keystore.Name]keystore.Revision
		err    error
	}
	if !p.listing.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("a listing has taken longer than %v and goes on", listPatience)
	}
	done := make(chan result, 1)
	go func() {
		listed, err := p.c.Source.List(ctx)
		p.listing.Store(false)
		done <- result{listed, err}
	}()
	timer := time.NewTimer(listPatience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.listed, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("a listing has taken longer than %v and goes on", listPatience)
	}
}

func (p *Publisher) noteListing(err error) {
	p.mu.Lock()
	was := p.failing
	p.failing = err != nil
	p.mu.Unlock()
	switch {
	case err != nil && !was:
		p.c.Log.Warn("key sets cannot be listed; what was read before stays served", zap.Error(err))
	case err == nil && was:
		p.c.Log.Info("key sets can be listed again")
	}
}

// began reports whether everything has been listed and read once.
func (p *Publisher) began() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return !p.first.IsZero()
}

// changed returns the names whose stored version has not been looked at, and those whose rejection may end without a
// change of their own document.
func (p *Publisher) changed(listed map[keystore.Name]keystore.Revision) []keystore.Name {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var names []keystore.Name
	for n, rev := range listed {
		e := p.entries[n]
		if e == nil || e.revision != rev || e.rejected.Transient() {
			names = append(names, n)
		}
	}
	return names
}

// conflicts returns 1 if the stored version waits for another key set to give up a URL, else 0.
func (e *entry) conflicts() int {
	if e != nil && e.rejected.Is(lastgood.ReasonURLConflict) {
		return 1
	}
	return 0
}
