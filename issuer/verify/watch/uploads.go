package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// Upload is what is known of a JWKS that a relying party holds, and that a policy names. Nobody is asked for it: who uploads has the
// credentials, and records what they read back.
type Upload struct {
	KeySet keystore.Name
	observation.UploadStatus
	NotCompared string    // why what was read back could not be read here; empty if it could
	Compared    time.Time // when that was tried
	Generation  int64     // of the stored version that it was compared with
}

// UploadTrouble is why an upload is not known to have the published keys and no other.
type UploadTrouble string

// The troubles of an upload.
const (
	UploadBehind      = UploadTrouble(observation.UploadBehind) // it lacks a published key, or has another one
	UploadUnread      = UploadTrouble(observation.UploadUnread) // nothing was ever read back
	UploadStale       = UploadTrouble("stale")                  // nobody has read it back for a day, or the last try failed
	UploadNotCompared = UploadTrouble("not_compared")           // what was read back could not be read here
)

// UploadTroubles returns every trouble.
func UploadTroubles() []UploadTrouble {
	return []UploadTrouble{UploadBehind, UploadUnread, UploadStale, UploadNotCompared}
}

// Trouble returns that of an upload and why, as a sentence; empty if there is none.
func (u Upload) Trouble() (t UploadTrouble, why string) {
	switch {
	case u.NotCompared != "":
		return UploadNotCompared, u.NotCompared
	case u.State != observation.UploadCurrent:
		return UploadTrouble(u.State), u.Problem()
	case u.Older != nil:
		return UploadBehind, u.Problem()
	case u.Failed != nil:
		return UploadStale, u.Problem()
	case u.Stale(u.Compared):
		return UploadStale, "it was read back last at " + u.ReadAt.UTC().Format(time.RFC3339) + ", and nobody has looked since"
	}
	return "", ""
}

// verdict returns what is known of an upload, in the terms of looks. One that lacks nothing that signs is only late.
func (u Upload) verdict() Verdict {
	switch t, _ := u.Trouble(); {
	case t == "":
		return Everywhere
	case t != UploadBehind || u.Failed != nil || u.Stale(u.Compared):
		return NotSeen
	case u.Broken:
		return Different
	}
	return NotYet
}

// Uploads returns what is known of each upload, in order.
func (w *Watcher) Uploads() (all []Upload) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(w.uploads)) {
		all = append(all, w.uploads[n]...)
	}
	return all
}

// WentBack is a key set of which the store holds an older version than this watch, or an earlier run of it, has read: a backup
// was restored, or an old manifest applied.
type WentBack struct {
	KeySet keystore.Name
	observation.Older
}

// mark is what is remembered of the versions of a key set.
type mark struct {
	newest observation.Record // only of its newest version
	older  *observation.Older // how the version that was read last is older; nil if it is not
}

// WentBack returns the key sets of which the store holds an older version than before, in order.
func (w *Watcher) WentBack() (all []WentBack) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(w.marks)) {
		if older := w.marks[n].older; older != nil {
			all = append(all, WentBack{n, *older})
		}
	}
	return all
}

// compareTime bounds one comparison of all key sets with what is recorded. What was not compared by then is compared the next time.
const compareTime = 2 * time.Minute

// compareAll compares the key sets that have changed, or whose policy names uploads, with what is recorded of them.
func (w *Watcher) compareAll(ctx context.Context) {
	comparing, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, s := range w.roster.toCompare() {
		g.Go(func() error { return w.compare(comparing, s) })
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		w.c.Log.Warn("which versions of key sets were read cannot be recorded; it is tried again", zap.Error(err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compared = true
}

// compare compares one key set with what was read back of its uploads, and with its newest version so far. That is recorded where
// looks are, and outlives this process. After an error it is tried again.
func (w *Watcher) compare(ctx context.Context, s keystore.KeySet) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	uploads := w.uploadsOf(ctx, s)
	w.mu.Lock()
	was := w.marks[s.Name()]
	w.mu.Unlock()
	newest := was.newest.WithVersion(s)
	var err error
	if w.c.Records != nil {
		var r observation.Record
		r, err = w.c.Records.Mark(ctx, observation.Subject{Issuer: s.Issuers()[0].String(), Vantage: w.c.Vantage}, s, false)
		if err == nil && r.Newest != nil && (newest.Newest == nil || r.Newest.Generation > newest.Newest.Generation) {
			newest = observation.Record{Newest: r.Newest}
		}
	}
	is := mark{newest, newest.Older(s)}
	w.mu.Lock()
	defer w.mu.Unlock()
	logUploads(w.c.Log, w.uploads[s.Name()], uploads)
	logOlder(w.c.Log, s.Name(), was.older, is.older)
	w.uploads[s.Name()], w.marks[s.Name()] = uploads, is
	if err == nil {
		w.roster.compared(s)
	}
	return err
}

// uploadsOf compares the uploads that the policy of a key set names.
func (w *Watcher) uploadsOf(ctx context.Context, s keystore.KeySet) (all []Upload) {
	if s.Withdrawn() {
		return nil
	}
	var records []observation.Record
	failed := map[string]string{} // why, by upload
	for _, party := range s.Policy().Uploads() {
		if w.c.Records == nil {
			failed[party] = "this watch was not told where observations are recorded"
			continue
		}
		switch r, err := w.c.Records.Load(ctx, s.Name(), observation.Subject{Issuer: party}); {
		case err == nil:
			records = append(records, r)
		case !errors.Is(err, keystore.ErrNotFound):
			failed[party] = text.OneLine(err.Error(), 400)
		}
	}
	for _, u := range observation.UploadsOf(s, records) {
		all = append(all, Upload{KeySet: s.Name(), UploadStatus: u, NotCompared: failed[u.Upload], Compared: time.Now(), Generation: s.Generation()})
	}
	return all
}
