package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Copy is what is known of a JWKS that a relying party holds, and that a policy names. Nobody is asked for it: who uploads has the
// credentials, and records what they read back.
type Copy struct {
	KeySet keystore.Name
	observation.Copy
	NotCompared string    // why what was read back could not be read here the last time: the rest is as it was; empty if it could
	Compared    time.Time // when that was tried last
	Generation  int64     // of the stored version that it was, or would have been, compared with
}

// CopyTrouble is why a copy is not known to have, and to have had of late, the published keys and no other.
type CopyTrouble string

// The troubles, of which [CopyIntruded] alone is of what a copy had and not of what it has. The first three are what was read back last.
const (
	CopyBehind                  = CopyTrouble(observation.CopyBehind) // it lacks a published key
	CopyAhead                   = CopyTrouble(observation.CopyAhead)  // it has a key that is not published
	CopyUnread                  = CopyTrouble(observation.CopyUnread) // nothing was ever read back
	CopyStale       CopyTrouble = "stale"                             // nobody has read it back for a day, or the last try failed, or no token is taken there
	CopyIntruded    CopyTrouble = "intruded"                          // it had of late a key that the store never had
	CopyNotCompared CopyTrouble = "not_compared"                      // what was read back could not be read here
)

// CopyTroubles returns every trouble.
func CopyTroubles() []CopyTrouble {
	return []CopyTrouble{CopyBehind, CopyAhead, CopyUnread, CopyStale, CopyIntruded, CopyNotCompared}
}

// Troubles returns those of a copy, each with why as a sentence.
func (c Copy) Troubles() map[CopyTrouble]string {
	all := map[CopyTrouble]string{}
	if why := c.Difference(); c.State != "" && why != "" {
		all[CopyTrouble(c.State)] = why
	}
	if c.State != "" && c.Stale(c.Compared) {
		all[CopyStale] = "it was read back last at " + c.ReadAt.UTC().Format(time.RFC3339) + ", and nobody has looked since"
	}
	if why := c.Failure(); why != "" {
		all[CopyStale] = why
	}
	if why := c.Intrusion(); why != "" {
		all[CopyIntruded] = why
	}
	if c.NotCompared != "" {
		all[CopyNotCompared] = c.NotCompared
	}
	return all
}

// verdict returns what is known of a copy, in the terms of looks. A copy that lacks nothing that signs is only late.
func (c Copy) verdict() Verdict {
	switch {
	case c.NotCompared != "" || c.State == observation.CopyUnread || c.Failed != nil || c.Stale(c.Compared):
		return NotSeen
	case c.Broken:
		return Different
	case c.State != observation.CopyCurrent:
		return NotYet
	}
	return Everywhere
}

// held names a copy.
type held struct {
	keySet keystore.Name
	upload string
}

func (h held) compare(o held) int {
	return cmp.Or(cmp.Compare(h.keySet, o.keySet), cmp.Compare(h.upload, o.upload))
}

// Copies returns what is known of each copy, in order.
func (w *Watcher) Copies() (all []Copy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range slices.SortedFunc(maps.Keys(w.copies), held.compare) {
		all = append(all, w.copies[h])
	}
	return all
}

// readCopies compares what is stored with the copies, and with what was stored before, each time that the store was read.
func (w *Watcher) readCopies(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.read:
		}
		all := w.compareCopies(ctx)
		if ctx.Err() != nil {
			return
		}
		w.takeCopies(all)
		w.compareMarks(ctx)
	}
}

// copiesTime bounds one reading of all copies. What was not read by then is not compared.
const copiesTime = 2 * time.Minute

// compareCopies reads what was read back of every copy that a policy names.
func (w *Watcher) compareCopies(ctx context.Context) map[held]Copy {
	ctx, cancel := context.WithTimeout(ctx, copiesTime)
	defer cancel()
	w.mu.Lock()
	before := maps.Clone(w.copies)
	w.mu.Unlock()
	var mu sync.Mutex // guards all
	all := map[held]Copy{}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range w.roster.copied() {
		g.Go(func() error {
			for _, c := range w.compare(ctx, s) {
				h := held{s.Name(), c.Upload}
				if was := before[h]; c.NotCompared != "" && was.State != "" {
					c.Copy = was.Copy
				}
				mu.Lock()
				all[h] = c
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait() // what cannot be read is said of the copy
	return all
}

// compare compares the copies of one key set. State is empty where what was read back cannot be read.
func (w *Watcher) compare(ctx context.Context, s keystore.KeySet) (all []Copy) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var records []observation.Record
	failed := map[string]string{} // why, by upload
	for _, party := range s.Policy().Uploads() {
		if w.c.Records == nil {
			failed[party] = "this watch was not told where observations are recorded"
			continue
		}
		switch r, err := w.c.Records.Load(ctx, s.Name(), observation.Place{Issuer: party}); {
		case err == nil:
			records = append(records, r)
		case !errors.Is(err, keystore.ErrNotFound):
			failed[party] = text.OneLine(err.Error(), 400)
		}
	}
	for _, c := range observation.Copies(s, records) {
		one := Copy{KeySet: s.Name(), Copy: c, Compared: time.Now(), Generation: s.Generation()}
		if one.NotCompared = failed[c.Upload]; one.NotCompared != "" {
			one.Copy = observation.Copy{Upload: c.Upload, Broken: true}
		}
		all = append(all, one)
	}
	return all
}

// takeCopies takes over what is known of the copies, and logs what has changed.
func (w *Watcher) takeCopies(all map[held]Copy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range slices.SortedFunc(maps.Keys(all), held.compare) {
		was, is := w.copies[h].Troubles(), all[h].Troubles()
		fields := []zap.Field{zap.String("key_set", string(h.keySet)), zap.String("copy", text.OneLine(h.upload, 300))}
		for _, t := range CopyTroubles() {
			why := is[t]
			evidence := append(slices.Clone(fields), zap.String("reason", string(t)), zap.String("evidence", why))
			switch {
			case t == CopyIntruded && why != "" && why != was[t]: // each time anew
				w.c.Log.Warn("a copy had a key that the store never had", evidence...)
			case t != CopyIntruded && why != "" && was[t] == "":
				w.c.Log.Warn("a copy is not known to have the published keys", evidence...)
			}
		}
		delete(was, CopyIntruded) // which says what it had, not what it has
		delete(is, CopyIntruded)
		if len(was) > 0 && len(is) == 0 {
			w.c.Log.Info("a copy has the published keys", fields...)
		}
	}
	w.copies = all
}
