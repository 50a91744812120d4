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

const defaultPoll = 10 * time.Second

// Publisher turns what a store holds into snapshots. The last good version of each key set stays through whatever
// happens to the store; what is rejected or missing shows in the log, the metrics and the report.
//
// One goroutine refreshes and publishes. Nothing that takes long happens while somebody who asks for the state has to wait: key
// sets are read and judged without the lock that Ready, Report and Collect take. A store that hangs costs readTime for each
// refresh, and nothing else.
type Publisher struct {
	c         Config
	admission Admission
	current   atomic.Pointer[snapshot]

	mu       sync.RWMutex // guards what follows, which only the refreshing goroutine changes; held to assign it or to copy it
	entries  map[keystore.Name]*entry
	complete time.Time // when the last complete listing was taken
	first    time.Time // when the first one was
	ready    bool      // for good
	failing  bool      // the last listing failed (so that one line is logged per change of state)
}

// entry is what is known of one key set. It is immutable.
type entry struct {
	revision keystore.Revision   // of the stored version that was looked at last; empty when there is none
	served   *version            // the last good one; nil when there was none
	rejected *lastgood.Rejection // why the stored version is not the served one, or that there is none; nil when it is served
}

// NewPublisher returns a Publisher that serves nothing yet.
func NewPublisher(c Config) *Publisher {
	if c.Cache == (keystore.Cache{}) {
		c.Cache = keystore.DefaultCache()
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	p := &Publisher{c: c, admission: Admission{Patterns: c.Patterns, Dev: c.Dev}, entries: map[keystore.Name]*entry{}}
	p.current.Store(&snapshot{})
	return p
}

// Refresh lists the store, reads what has changed and publishes it. An error means that the listing failed, and changes
// nothing else. It must not run beside Run, which refreshes too.
func (p *Publisher) Refresh(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	listed, err := p.c.Source.List(limited)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // a stop is not the store's fault
	}
	p.noteListing(err)
	if err != nil {
		p.publish(nil, nil) // time has passed, which may end the waiting for a key set that cannot be served
		return fmt.Errorf("list key sets: %w", err)
	}
	return p.take(ctx, p.changed(listed), listed)
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
