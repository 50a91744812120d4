package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

const (
	// readTime bounds one reading of the store.
	readTime = 20 * time.Second
	// compareTime bounds one comparison of all key sets with what is recorded. What was not compared by then is compared the next time.
	compareTime = 2 * time.Minute
	// parallel is how many key sets are read at once.
	parallel = 8
)

// readStore keeps what is known of the key sets up to date.
func (w *Watcher) readStore(ctx context.Context) {
	ticker := time.NewTicker(min(reread, w.c.Every))
	defer ticker.Stop()
	for {
		err := w.refresh(ctx)
		w.compareAll(ctx)
		if ctx.Err() != nil {
			return
		}
		w.took(err, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// took notes that the store was read, or why it was not.
func (w *Watcher) took(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && !w.failing:
		w.c.Log.Warn("the store cannot be read; the issuers known so far are watched", zap.Error(err))
	case err == nil && w.failing:
		w.c.Log.Info("the store can be read again")
	}
	if w.failing = err != nil; err == nil {
		w.read = now
	}
}

// refresh reads what has changed. An error means that the store could not be read; what was read counts all the same.
func (w *Watcher) refresh(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	list, err := w.c.Store.List(listing)
	if err != nil {
		return fmt.Errorf("list the key sets: %w", err)
	}
	w.mu.Lock()
	defer w.changed()
	g, loading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var changed []*keySet
	for n := range list {
		if w.sets[n] == nil {
			w.sets[n] = &keySet{name: n}
		}
	}
	for n, k := range w.sets {
		if revision, is := list[n]; !is {
			w.setUnread(k, true)
		} else if k.unread || k.revision != revision {
			changed = append(changed, k)
		}
	}
	w.mu.Unlock()
	for _, k := range changed {
		g.Go(func() error { return w.load(loading, k) })
	}
	return g.Wait()
}

// load reads one key set. An error is about the store as a whole.
func (w *Watcher) load(ctx context.Context, k *keySet) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s, revision, err := w.c.Store.Load(ctx, k.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && (w.c.Admits == nil || w.c.Admits(s)):
		k.revision, k.set = revision, s
		k.aim(s, time.Now(), min(soonest, w.c.Every))
		w.setUnread(k, false)
	case err == nil, keystore.OfDocument(err), errors.Is(err, keystore.ErrNotFound):
		w.setUnread(k, true)
	default:
		return fmt.Errorf("load key set %q: %w", k.name, err)
	}
	return nil
}

// setUnread notes whether the stored version of a key set is unknown. The caller holds mu.
func (w *Watcher) setUnread(k *keySet, unread bool) {
	switch {
	case unread && !k.unread:
		w.c.Log.Warn("a key set is missing, cannot be read, or is outside --issuer-url; its issuers are watched as they were", zap.String("key_set", string(k.name)))
	case !unread && k.unread:
		w.c.Log.Info("a key set can be read again", zap.String("key_set", string(k.name)))
	}
	k.unread = unread
}

// aim has every issuer of a version of the key set looked at, at some moment within a time: anyone who published a change waits for the
// verdict, and the looks of thousands that are read at once are spread. An issuer
// URL that an earlier version had stays: no change of a key set drops one, unless nobody is to read the documents any more.
func (k *keySet) aim(s keystore.KeySet, now time.Time, within time.Duration) {
	if s.Withdrawn() || s.Policy().Reach == keystore.ReachCopies {
		k.issuers = nil
		return
	}
	for _, u := range s.Issuers() {
		if !slices.ContainsFunc(k.issuers, func(i *issuer) bool { return i.URL == u.String() }) {
			i := &issuer{Status: Status{Issuer: Issuer{s.Name(), u.String()}}, target: verify.Target{URL: u}, due: now.Add(within)}
			k.issuers = append(k.issuers, i)
		}
	}
	for _, i := range k.issuers {
		i.target = verify.TargetOf(s, i.target.URL)
		if soon := now.Add(rand.N(within)); i.due.After(soon) { //nolint:gosec // nobody gains by guessing it
			i.due = soon
		}
	}
}

// compareAll compares the key sets that have changed, or whose policy names uploads, with what is recorded of them.
func (w *Watcher) compareAll(ctx context.Context) {
	comparing, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(parallel)
	w.mu.Lock()
	var all []*keySet
	for _, k := range w.sets {
		if k.set.Name() != "" {
			all = append(all, k)
		}
	}
	w.mu.Unlock()
	for _, k := range all {
		g.Go(func() error { return w.compare(comparing, k) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		w.c.Log.Warn("which versions of key sets were read cannot be recorded; it is tried again", zap.Error(err))
	}
}

// compare compares one key set with what was read back of its uploads, and with its newest version so far. That is recorded where
// looks are, and outlives this process. After an error it is tried again.
func (w *Watcher) compare(ctx context.Context, k *keySet) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s := k.set
	uploads, newest := w.uploadsOf(ctx, s), k.newest.WithVersion(s)
	var err error
	if w.c.Records != nil {
		var r observation.Record
		r, err = w.c.Records.Mark(ctx, observation.Subject{Issuer: s.Issuers()[0].String(), Vantage: w.c.Vantage}, s, false)
		if err == nil && r.Newest != nil && (newest.Newest == nil || r.Newest.Generation > newest.Newest.Generation) {
			newest = observation.Record{Newest: r.Newest}
		}
	}
	older := newest.Older(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	logUploads(w.c.Log, k.uploads, uploads)
	logOlder(w.c.Log, s.Name(), k.older, older)
	k.uploads, k.newest, k.older = uploads, newest, older
	if err == nil && len(uploads) == 0 {
		k.set = keystore.KeySet{}
	}
	return err
}
