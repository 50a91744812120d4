// Package watch looks at every issuer of a store again and again, and knows what is wrong with each: above all whether a
// key is published that the store does not know. Of uploads it knows what was read back and recorded, and of each key set which
// version the store held. It promises to write nothing but observations, to end no issuer because
// something is absent, and that neither a slow origin nor a store that hangs keeps it from looking at the others.
//
// When an issuer is looked at, and what a look makes of its [Status], are pure decisions in files of their own; a [Watcher]
// carries them out. What is rogue is decided in package verify.
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
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Config says what to watch, and from where. Store, Every and Log are required.
type Config struct {
	Store   keystore.Reader
	Every   time.Duration // each issuer is looked at once in this time
	Network verify.Network
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
)

// Watcher watches the issuers of a store. New makes one.
type Watcher struct {
	c    Config
	look func(context.Context, verify.Target, func(context.Context) (keystore.KeySet, error)) (verify.Sight, error)
	wake chan struct{} // something has changed that the loop waits for

	roster *roster // only readStore changes it

	mu       sync.Mutex // guards the rest
	schedule *schedule
	status   map[Issuer]Status
	running  int
	store    StoreStatus
	listed   listing
	uploads  map[keystore.Name][]Upload
	marks    map[keystore.Name]mark
	compared bool // every key set was, once
	ready    bool
}

// StoreStatus is what is known of the store.
type StoreStatus struct {
	Failing bool      // it could not be read the last time
	Read    time.Time // when it was last read, whole; zero for never
	Unread  int       // key sets of which the stored version is missing, broken or not admitted: their last good one is looked at
}

// New returns a Watcher that has read nothing yet.
func New(c Config) *Watcher {
	return &Watcher{
		c: c, look: c.Network.Compare, wake: make(chan struct{}, 1), roster: newRoster(c),
		schedule: newSchedule(c.Every), status: map[Issuer]Status{}, uploads: map[keystore.Name][]Upload{}, marks: map[keystore.Name]mark{},
	}
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

// Issuers returns what is known of each issuer, in order.
func (w *Watcher) Issuers() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.status), func(a, b Status) int { return a.compare(b.Issuer) })
}

// Store returns what is known of the store.
func (w *Watcher) Store() StoreStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

// Ready returns why not every issuer of the store has been looked at yet, or nil; and nil from then on.
func (w *Watcher) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ready {
		return nil
	}
	if w.store.Read.IsZero() {
		return errors.New("the store has not been read yet")
	}
	missing := 0
	for _, s := range w.status {
		if s.Looked.IsZero() {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d issuers have not been looked at yet", missing, len(w.status))
	}
	if !w.compared {
		return errors.New("the key sets have not been compared with what is recorded yet")
	}
	w.ready = true
	return nil
}

// changed wakes the loop, without waiting for it.
func (w *Watcher) changed() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// begin returns the issuers to look at now, and how long to wait for the next one.
func (w *Watcher) begin(now time.Time) (due []Issuer, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	due = w.schedule.begin(now, atOnce-w.running)
	w.running += len(due)
	wait = time.Minute // the clock may be set
	if next := w.schedule.next(); w.running < atOnce && !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	return due, wait
}

// lookAt looks at an issuer and records what was seen. Of one that has ended meanwhile nothing is said.
func (w *Watcher) lookAt(ctx context.Context, i Issuer) {
	defer w.changed()
	w.mu.Lock()
	target := w.listed.targets[i]
	o := outcome{generation: w.listed.stored[i.KeySet].Generation}
	w.mu.Unlock()
	ended := false
	o.sight, o.err = w.look(ctx, target, func(ctx context.Context) (keystore.KeySet, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		s, _, err := w.c.Store.Load(ctx, i.KeySet)
		if err == nil {
			ended, o.generation = s.Withdrawn(), s.Generation()
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
	w.schedule.end(i)
	before, known := w.status[i]
	if ctx.Err() != nil || !known || ended {
		return
	}
	after := before.after(o)
	w.status[i] = after
	logChanges(w.c.Log, before, after)
}

// readStore keeps the list of issuers up to date.
func (w *Watcher) readStore(ctx context.Context) {
	ticker := time.NewTicker(min(reread, w.c.Every))
	defer ticker.Stop()
	for {
		err := w.roster.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		w.take(w.roster.listing(), err, time.Now())
		w.compareAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// take takes over what was read of the store, or that it could not be read. An issuer whose latest look was at another version is
// looked at soon: whoever published a change waits for the verdict.
func (w *Watcher) take(is listing, err error, now time.Time) {
	defer w.changed()
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.listed
	w.listed = is
	w.schedule.set(slices.SortedFunc(maps.Keys(is.targets), Issuer.compare), now)
	maps.DeleteFunc(w.status, func(i Issuer, _ Status) bool { _, stays := is.targets[i]; return !stays })
	for i := range is.targets {
		s, known := w.status[i]
		if !known {
			w.status[i] = Status{Issuer: i}
		}
		if !s.Looked.IsZero() && s.Generation < is.stored[i.KeySet].Generation {
			w.schedule.hurry(i, now)
		}
	}
	for _, n := range is.unread {
		if !slices.Contains(was.unread, n) {
			w.c.Log.Warn("a key set is missing, cannot be read, or is outside --issuer-url; its issuers are watched as they were", zap.String("key_set", string(n)))
		}
	}
	for _, n := range was.unread {
		if !slices.Contains(is.unread, n) {
			w.c.Log.Info("a key set can be read again", zap.String("key_set", string(n)))
		}
	}
	switch {
	case err != nil && !w.store.Failing:
		w.c.Log.Warn("the store cannot be read; the issuers known so far are watched", zap.Error(err))
	case err == nil && w.store.Failing:
		w.c.Log.Info("the store can be read again")
	}
	w.store.Unread, w.store.Failing = len(is.unread), err != nil
	if err == nil {
		w.store.Read = now
	}
}
