// Package watch looks at every issuer of a store again and again, and knows what is wrong with each: above all whether a
// key is published that the store does not know. Of uploads it knows what was read back and recorded, and of each key set which
// version the store held. It promises to write nothing but observations, to end no issuer because
// something is absent, and that neither a slow origin nor a store that hangs keeps it from looking at the others.
//
// One loop looks and one reads the store; both change one state per key set. What a look makes of a [Status] is a pure decision in a
// file of its own; what is rogue is decided in package verify.
package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Config says what to watch, and from where. Store, Every and Log are required.
type Config struct {
	Store   keystore.Reader
	Every   time.Duration // each issuer is looked at once in this time
	Network fetch.Network
	Records *observation.Store // where looks are recorded, and what was read back of uploads is read; nil for nowhere
	Vantage string             // of the records
	// Admits reports whether a key set may have its issuer URLs. One that may not counts as unread, and its issuers are watched as
	// they were: the writers of a store are not to choose whom the watch dials. nil admits every key set.
	Admits func(keystore.KeySet) bool
	Log    *zap.Logger // gets a line for each change of an issuer's state
}

const (
	// atOnce bounds how many issuers are looked at side by side. A look takes ten seconds and more, nearly all of it in
	// waiting, and has two connections open at most, so that all together have 1,024. In five minutes it is enough for ten
	// thousand issuers.
	atOnce = 512
	// reread is how often the store is listed, if Every is no shorter.
	reread = 30 * time.Second
	// soonest bounds how long an issuer that is new, or whose key set has changed, waits for a look.
	soonest = 15 * time.Second
)

// Watcher watches the issuers of a store. New makes one.
type Watcher struct {
	c    Config
	look func(context.Context, verify.Target, func(context.Context) (keystore.KeySet, error)) (verify.Sight, error)
	wake chan struct{} // something has changed that the loop waits for

	mu      sync.Mutex // guards the rest
	sets    map[keystore.Name]*keySet
	running int       // looks
	failing bool      // the store could not be read the last time
	read    time.Time // when the store was last read, whole; zero for never
	ready   bool
}

// keySet is what is known of a key set. What vanishes from the store, or cannot be read, stays as it was: only a tombstone ends an issuer.
// Only reading the store changes it, but for the issuers.
type keySet struct {
	name     keystore.Name
	revision keystore.Revision
	unread   bool // what is stored now could not be read or is not admitted, or nothing is stored
	issuers  []*issuer
	set      keystore.KeySet // the version that was read last, as long as it is to be compared with what is recorded
	uploads  []Upload
	newest   observation.Record // only of the newest version
	older    *observation.Older // how the version that was read last is older; nil if it is not
}

// issuer is one that is looked at.
type issuer struct {
	Status
	target  verify.Target
	due     time.Time
	running bool
}

// Issuer is one issuer URL of a key set. Each is looked at by itself.
type Issuer struct {
	KeySet keystore.Name
	URL    string
}

// Report is what a Watcher knows. Its lists are in order of the key sets.
type Report struct {
	Failing  bool      // the store could not be read the last time
	Read     time.Time // when it was last read, whole; zero for never
	Unread   int       // key sets whose stored version is missing, broken or not admitted: their last good one is looked at
	Issuers  []Status
	Uploads  []Upload
	WentBack []WentBack
}

// New returns a Watcher that has read nothing yet.
func New(c Config) *Watcher {
	look := func(ctx context.Context, t verify.Target, stored func(context.Context) (keystore.KeySet, error)) (verify.Sight, error) {
		return verify.Compare(ctx, c.Network, t, stored)
	}
	return &Watcher{c: c, look: look, wake: make(chan struct{}, 1), sets: map[keystore.Name]*keySet{}}
}

// Run watches until ctx is done, and returns when nothing is running any more.
func (w *Watcher) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { w.readStore(ctx) })
	for ctx.Err() == nil {
		due, wait := w.begin(time.Now())
		for _, i := range due {
			work.Go(func() { w.lookAt(ctx, i) })
		}
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-time.After(wait):
		}
	}
}

// Log returns the log of the watcher.
func (w *Watcher) Log() *zap.Logger { return w.c.Log }

// Report returns what is known now.
func (w *Watcher) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Report{Failing: w.failing, Read: w.read}
	for _, n := range slices.Sorted(maps.Keys(w.sets)) {
		k := w.sets[n]
		if k.unread {
			r.Unread++
		}
		for _, i := range k.issuers {
			r.Issuers = append(r.Issuers, i.Status)
		}
		r.Uploads = append(r.Uploads, k.uploads...)
		if k.older != nil {
			r.WentBack = append(r.WentBack, WentBack{n, *k.older})
		}
	}
	return r
}

// Ready returns why not every issuer of the store has been looked at yet, or nil; and nil from then on.
func (w *Watcher) Ready() error {
	r := w.Report()
	missing := 0
	for _, i := range r.Issuers {
		if i.Looked.IsZero() {
			missing++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = w.ready || !r.Read.IsZero() && missing == 0
	switch {
	case w.ready:
		return nil
	case r.Read.IsZero():
		return errors.New("the store has not been read yet")
	}
	return fmt.Errorf("%d of %d issuers have not been looked at yet", missing, len(r.Issuers))
}

// changed wakes the loop, without waiting for it.
func (w *Watcher) changed() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// begin returns the issuers to look at now, those that have waited longest first, and how long to wait for the next one.
func (w *Watcher) begin(now time.Time) (due []*issuer, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait = time.Minute // the clock may be set
	for _, k := range w.sets {
		for _, i := range k.issuers {
			if i.due.Sub(now) > w.c.Every { // it was set back
				i.due = now
			}
			if i.running {
				continue
			}
			if left := i.due.Sub(now); left > 0 {
				wait = min(wait, left)
			} else {
				due = append(due, i)
			}
		}
	}
	slices.SortFunc(due, func(a, b *issuer) int { return a.due.Compare(b.due) })
	due = due[:min(len(due), atOnce-w.running)] // the end of a look wakes the loop for the others
	w.running += len(due)
	for _, i := range due {
		i.running, i.due = true, now.Add(w.c.Every)
	}
	return due, wait
}

// lookAt looks at an issuer and records what was seen. Of one that has ended meanwhile nothing is said.
func (w *Watcher) lookAt(ctx context.Context, i *issuer) {
	defer w.changed()
	w.mu.Lock()
	k, target := w.sets[i.KeySet], i.target
	w.mu.Unlock()
	var o outcome
	ended := false
	o.sight, o.err = w.look(ctx, target, func(ctx context.Context) (keystore.KeySet, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		s, _, err := w.c.Store.Load(ctx, i.KeySet)
		if err == nil {
			ended = s.Withdrawn()
		}
		return s, err
	})
	if w.c.Records != nil && o.err == nil {
		var r observation.Record
		adding, cancel := context.WithTimeout(ctx, readTime)
		r, o.notRecorded = w.c.Records.Add(adding, i.KeySet, observation.Subject{Issuer: i.URL, Vantage: w.c.Vantage}, o.sight.Look)
		cancel()
		o.complete = r.Complete
	}
	o.at = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	i.running = false
	if ctx.Err() != nil || !slices.Contains(k.issuers, i) || ended {
		return
	}
	before := i.Status
	i.Status = before.after(o)
	logChanges(w.c.Log, before, i.Status)
}
