package issuer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
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
// One goroutine refreshes and publishes, and nobody waits for it: what is known is one snapshot, which it replaces whole. A store that
// hangs costs readTime for each refresh, and nothing else.
type Publisher struct {
	c         Config
	admission Admission
	current   atomic.Pointer[snapshot]
}

// NewPublisher returns a Publisher that serves nothing yet.
func NewPublisher(c Config) *Publisher {
	if c.Cache == (keystore.Cache{}) {
		c.Cache = keystore.DefaultCache()
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	p := &Publisher{c: c, admission: Admission{Patterns: c.Patterns, Dev: c.Dev}}
	p.current.Store(&snapshot{entries: map[keystore.Name]*entry{}})
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
	was := p.current.Load()
	now := *was
	now.failing = err != nil
	p.current.Store(&now)
	switch {
	case now.failing && !was.failing:
		p.c.Log.Warn("key sets cannot be listed; what was read before stays served", zap.Error(err))
	case was.failing && !now.failing:
		p.c.Log.Info("key sets can be listed again")
	}
}

// changed returns the names whose stored version has not been looked at, and those whose rejection may end without a
// change of their own document.
func (p *Publisher) changed(listed map[keystore.Name]keystore.Revision) []keystore.Name {
	known := p.current.Load().entries
	var names []keystore.Name
	for n, rev := range listed {
		e := known[n]
		if e == nil || e.revision != rev || e.rejected.Transient() {
			names = append(names, n)
		}
	}
	return names
}
