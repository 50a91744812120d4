package issuer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
)

// Config is what a Publisher needs. Source and Log are required.
type Config struct {
	Source   keystore.Reader
	Patterns []Pattern      // which key set may have which issuer URL; none = every URL is refused
	Cache    keystore.Cache // lifetimes for key sets whose policy has none; zero = keystore.DefaultCache
	Dev      bool           // serve development key sets too
	Poll     time.Duration  // how often everything is listed, beside the watch; zero = 10 s
	Log      *zap.Logger
}

const (
	defaultPoll = 10 * time.Second
	// startPatience is how long a key set that cannot be served keeps a fresh process from being ready. Without an
	// end, one broken document would keep every replacement of a dying replica out of service.
	startPatience = 5 * time.Minute
)

// Publisher turns what a store holds into snapshots. The last good version of each key set stays through whatever
// happens to the store; what is rejected or missing is told by log, metrics and Status.
type Publisher struct {
	c       Config
	current atomic.Pointer[Snapshot]

	mu       sync.Mutex // guards what follows; held while a batch is judged, never while the store is read
	entries  map[keystore.Name]*entry
	complete time.Time // when the last complete listing was taken
	first    time.Time // when the first one was
	ready    bool
	failing  bool // the last listing failed (so that one line is logged per change of state)
}

// entry is what is known of one key set.
type entry struct {
	revision keystore.Revision   // of the stored version that was looked at last; empty when there is none
	served   *version            // the last good one; nil when there was none
	rejected *keystore.Rejection // why the stored version is not the served one; nil when it is
	missing  bool                // served, but not in the store
}

// NewPublisher returns a Publisher that serves nothing yet.
func NewPublisher(c Config) *Publisher {
	if c.Cache == (keystore.Cache{}) {
		c.Cache = keystore.DefaultCache()
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	p := &Publisher{c: c, entries: map[keystore.Name]*entry{}}
	p.current.Store(newSnapshot())
	return p
}

// Snapshot returns what is served now. It never returns nil.
func (p *Publisher) Snapshot() *Snapshot { return p.current.Load() }

// found is one key set as the store gave it.
type found struct {
	name     keystore.Name
	revision keystore.Revision
	version  *version            // nil when it could not be read
	rejected *keystore.Rejection // why not
	absent   bool
}

// Refresh lists the store, reads what has changed and publishes it. An error means that the listing failed: nothing
// is concluded from it but that.
func (p *Publisher) Refresh(ctx context.Context) error {
	listed, err := p.c.Source.List(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // a stop, which says nothing about the store
	}
	p.noteListing(err)
	if err != nil {
		return fmt.Errorf("list key sets: %w", err)
	}
	changed := p.changed(listed)
	all, err := p.load(ctx, changed)
	if err != nil {
		return err
	}
	for i := range all { // what could not be read has no revision of its own; an older one than it was read at only costs a reading
		if f, rev := &all[i], listed[all[i].name]; f.rejected != nil || f.revision == rev {
			f.revision = rev // of two equal texts one is enough
		}
	}
	p.publish(all, listed)
	return nil
}

func (p *Publisher) noteListing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.failing {
		p.c.Log.Warn("key sets cannot be listed; what was read before stays served", zap.Error(err))
	}
	if err == nil && p.failing {
		p.c.Log.Info("key sets can be listed again")
	}
	p.failing = err != nil
}

// changed returns the names whose stored version has not been looked at, and those in conflict over a URL, whose
// case changes with what the others do.
func (p *Publisher) changed(listed map[keystore.Name]keystore.Revision) []keystore.Name {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []keystore.Name
	for n, rev := range listed {
		e := p.entries[n]
		if e == nil || e.revision != rev || e.again() {
			names = append(names, n)
		}
	}
	return names
}

// again tells that a rejection may end without a change of the document.
func (e *entry) again() bool {
	return e.rejected != nil && (e.rejected.Reason == URLConflict || e.rejected.Reason == Unreadable)
}

// load reads key sets, several at a time, and keeps of each only its version.
func (p *Publisher) load(ctx context.Context, names []keystore.Name) ([]found, error) {
	all := make([]found, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0) + 2)
	for i, n := range names {
		g.Go(func() error {
			all[i] = p.read(ctx, n)
			return ctx.Err() // else an interrupted reading would look like a thousand unreadable key sets
		})
	}
	return all, g.Wait()
}

func (p *Publisher) read(ctx context.Context, n keystore.Name) found {
	s, rev, err := p.c.Source.Load(ctx, n)
	if err == nil {
		v, renderErr := newVersion(s, p.c.Cache)
		if renderErr == nil {
			return found{name: n, revision: rev, version: v}
		}
		err = renderErr
	}
	var broken *keystore.BrokenError
	switch {
	case errors.Is(err, keystore.ErrNotFound):
		return found{name: n, absent: true}
	case errors.As(err, &broken):
		return found{name: n, revision: rev, rejected: keystore.Reject(broken.Reason, "%v", broken.Err)}
	}
	return found{name: n, revision: rev, rejected: keystore.Reject(Unreadable, "%v", err)}
}

// publish judges a batch, swaps the snapshot in and logs what changed. listed is nil when the batch is not a complete
// reading.
func (p *Publisher) publish(all []found, listed map[keystore.Name]keystore.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(string(a.name), string(b.name)) })
	p.judge(all)
	e := edit{}
	for _, f := range all {
		p.settle(f, e)
	}
	if listed != nil {
		p.noteComplete(listed)
	}
	was := p.current.Load()
	next := was.with(e)
	if !was.settled { // counts all key sets, which a change of one must not
		waiting := len(p.unserved())
		p.noteReady(waiting, next.issuers())
		next.settled = p.ready && waiting == 0 && len(p.entries) > 0 // nothing at all: not filled yet, or not mounted
	}
	if len(e) > 0 || next.settled != was.settled {
		p.current.Store(next)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// judge fills in the rejections of a batch: each version by itself and against the one that is served, then all of
// them against each other.
func (p *Publisher) judge(all []found) {
	claims := map[place][]int{}
	for i := range all {
		f := &all[i]
		if f.version == nil {
			continue
		}
		if f.rejected = p.admit(f.name, f.version); f.rejected != nil {
			continue
		}
		for _, at := range f.version.places() {
			claims[at] = append(claims[at], i)
		}
	}
	for i := range all {
		for _, at := range all[i].version.places() {
			if by := claims[at]; slices.Contains(by, i) {
				p.judgeClaim(all, i, at, by)
			}
		}
	}
}

// admit judges one version without regard to other key sets.
func (p *Publisher) admit(n keystore.Name, v *version) *keystore.Rejection {
	if v.dev && !p.c.Dev {
		return keystore.Reject(DevRefused, "it is a development key set, which only keypostd --dev serves")
	}
	for _, u := range v.issuers {
		allowed := slices.ContainsFunc(p.c.Patterns, func(pat Pattern) bool { return pat.Allows(n, u) })
		if !allowed && !v.Withdrawn() {
			return keystore.Reject(URLNotPermitted, "its issuer URL %s matches no pattern in issuerURLs for the name %q", u, n)
		}
	}
	if e := p.entries[n]; e != nil {
		return e.served.follows(v)
	}
	return v.Follows(nil)
}

// judgeClaim settles whether newcomer i gets a URL: whoever is served has it; of several newcomers nobody does, since
// choosing one by chance would let a second writer take an issuer over at the next restart.
func (p *Publisher) judgeClaim(all []found, i int, at place, by []int) {
	owner, owned := p.current.Load().owner(at)
	switch f := &all[i]; {
	case owned && owner == f.name:
	case owned && !p.leaves(all, owner):
		f.rejected = keystore.Reject(URLConflict, "its issuer URL https://%s%s belongs to key set %q, which is served", at.host, at.path, owner)
	case len(by) > 1:
		f.rejected = keystore.Reject(URLConflict, "its issuer URL https://%s%s is also that of key set %q", at.host, at.path, all[other(by, i)].name)
	}
}

func other(by []int, i int) int {
	if by[0] == i {
		return by[1]
	}
	return by[0]
}

// leaves tells that the batch withdraws the owner of a URL.
func (p *Publisher) leaves(all []found, owner keystore.Name) bool {
	return slices.ContainsFunc(all, func(f found) bool {
		return f.name == owner && f.version != nil && f.version.Withdrawn() && f.rejected == nil
	})
}

// settle takes one judged key set over into the entries and, when it is good, into the edit.
func (p *Publisher) settle(f found, e edit) {
	was := p.entries[f.name]
	if f.absent {
		p.noteMissing(f.name)
		return
	}
	now := &entry{revision: f.revision, rejected: f.rejected}
	if was != nil {
		now.served = was.served
	}
	if f.rejected == nil {
		p.replace(f.name, now.served, f.version, e)
		now.served = f.version
	}
	p.entries[f.name] = now
	p.logChange(f.name, was, now)
}

func (p *Publisher) replace(n keystore.Name, old, next *version, e edit) {
	for _, at := range old.places() {
		if p.owns(n, at, e) && !slices.Contains(next.places(), at) {
			e[at] = nil
		}
	}
	for i, at := range next.places() {
		e[at] = &next.pages[i]
	}
	next.published()
}

// owns tells that a place is served for n, or will be after the edit.
func (p *Publisher) owns(n keystore.Name, at place, e edit) bool {
	if pg, edited := e[at]; edited {
		return pg != nil && pg.owner == n
	}
	owner, owned := p.current.Load().owner(at)
	return owned && owner == n
}

// noteComplete draws the conclusion of a complete listing: what is missing.
func (p *Publisher) noteComplete(listed map[keystore.Name]keystore.Revision) {
	now := time.Now()
	p.complete = now
	if p.first.IsZero() {
		p.first = now
	}
	for _, n := range slices.Sorted(maps.Keys(p.entries)) {
		if _, ok := listed[n]; !ok {
			p.noteMissing(n)
		}
	}
}

// noteReady decides once and for all whether this process is ready, given how many key sets cannot be served,
// and how many issuer URLs are.
func (p *Publisher) noteReady(waiting, issuers int) {
	if p.ready || p.first.IsZero() || waiting > 0 && time.Since(p.first) < startPatience {
		return
	}
	p.ready = true
	p.c.Log.Info("ready: every key set of a complete listing has been read", zap.Int("issuers", issuers), zap.Int("unserved", waiting))
}

// unserved returns the key sets that are stored and were never good.
func (p *Publisher) unserved() []keystore.Name {
	var names []keystore.Name
	for n, e := range p.entries {
		if e.served == nil {
			names = append(names, n)
		}
	}
	return names
}

// noteMissing: absence is never deletion. A key set that was never good, or is withdrawn, is forgotten or kept
// without alarm; every other one stays served and is told of.
func (p *Publisher) noteMissing(n keystore.Name) {
	e := p.entries[n]
	switch {
	case e == nil || e.missing:
	case e.served == nil:
		delete(p.entries, n)
		p.c.Log.Info("a rejected key set has left the store", zap.String("key_set", string(n)))
	case e.served.Withdrawn():
		e.rejected = nil
	default:
		p.entries[n] = &entry{served: e.served, missing: true}
		p.c.Log.Warn("key set is missing in the store; its last good version stays served", zap.String("key_set", string(n)), zap.Int64("generation", e.served.Generation()))
	}
}

// logChange writes at most one line: nothing when the same is true as before.
func (p *Publisher) logChange(n keystore.Name, was, now *entry) {
	if was == nil {
		was = &entry{}
	}
	name := zap.String("key_set", string(n))
	switch {
	case now.rejected != nil && (was.rejected == nil || *was.rejected != *now.rejected):
		fields := []zap.Field{name, zap.String("reason", string(now.rejected.Reason)), zap.String("message", now.rejected.Message)}
		if now.served != nil {
			fields = append(fields, zap.Int64("served_generation", now.served.Generation()))
		}
		p.c.Log.Warn("key set rejected; its last good version, if any, stays served", fields...)
	case now.rejected == nil && now.served != was.served && (was.served == nil || was.served.Digest() != now.served.Digest()):
		level := zap.InfoLevel
		if p.first.IsZero() { // at the start everything is published; one line says so, not ten thousand
			level = zap.DebugLevel
		}
		p.c.Log.Log(level, publishedMessage(now.served), name, zap.Int64("generation", now.served.Generation()), zap.Int("keys", now.served.keys()))
	case now.rejected == nil && (was.rejected != nil || was.missing):
		p.c.Log.Info("key set is as it is served again", name, zap.Int64("generation", now.served.Generation()))
	}
}

func publishedMessage(v *version) string {
	if v.Withdrawn() {
		return "key set withdrawn"
	}
	return "key set published"
}
