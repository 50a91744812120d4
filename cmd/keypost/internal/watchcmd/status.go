package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/issuer/verify/watch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/kubestore"
)

// statuses keeps the status of KeySet objects as the watcher sees them. Without an API it does nothing.
type statuses struct {
	set     func(ctx context.Context, n keystore.Name, to kubestore.Status, now time.Time) (bool, error)
	log     *zap.Logger
	written map[keystore.Name]written // as far as is known; only run uses it
	failing atomic.Bool
}

// written is what the status of an object says, and when it was last read.
type written struct {
	seen watch.Seen
	read time.Time
}

func (o *options) statuses(ctx context.Context) (*statuses, error) {
	s := &statuses{log: service.NewLogger(o.Err), written: map[keystore.Name]written{}}
	if !o.status {
		return s, nil
	}
	store, err := cli.ParseStore(o.Store)
	if err != nil {
		return nil, err
	}
	b, err := store.KeySetStatus(ctx)
	if err != nil {
		return nil, cli.Usagef("--status: %v", err)
	}
	s.set = b.SetStatus
	return s, nil
}

const (
	// statusEvery is how often what was seen is compared with what was written. Between two looks there is nothing new.
	statusEvery = 2 * time.Second
	// statusPause follows a failure.
	statusPause = 30 * time.Second
	// statusAgain is how old what was written must be before it is read again. Anyone who may write the status, or makes an object
	// anew, changes what it says.
	statusAgain = 30 * time.Second
	// mostAgain is how many are read again at a time, the oldest first: with ten thousand key sets each in a quarter of an hour.
	mostAgain = 20
)

// run writes what changes until ctx is done.
func (s *statuses) run(ctx context.Context, w *watch.Watcher) {
	for pause := statusEvery; s.set != nil; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		err := s.write(ctx, w.Seen(), time.Now())
		if ctx.Err() != nil {
			return
		}
		switch was := s.failing.Swap(err != nil); {
		case err != nil && !was:
			s.log.Warn("the status of KeySet objects cannot be written", zap.Error(err))
		case err == nil && was:
			s.log.Info("the status of KeySet objects can be written again")
		}
		if pause = statusEvery; err != nil {
			pause = statusPause
		}
	}
}

// due returns those of all whose status has to be written: what is new, and then what has not been read for the longest.
func (s *statuses) due(all []watch.Seen, now time.Time) []watch.Seen {
	var fresh, again []watch.Seen
	for _, seen := range all {
		switch was := s.written[seen.KeySet]; {
		case was.seen != seen:
			fresh = append(fresh, seen)
		case now.Sub(was.read) >= statusAgain:
			again = append(again, seen)
		}
	}
	slices.SortStableFunc(again, func(a, b watch.Seen) int { return s.written[a.KeySet].read.Compare(s.written[b.KeySet].read) })
	return append(fresh, again[:min(len(again), mostAgain)]...)
}

// write writes what is due. Trouble with one object leaves the others; without rights, or without an answer, none is tried
// further.
func (s *statuses) write(ctx context.Context, all []watch.Seen, now time.Time) (failed error) {
	for _, seen := range s.due(all, now) {
		done, err := s.set(ctx, seen.KeySet, statusOf(seen), now)
		if done {
			s.written[seen.KeySet] = written{seen, now}
		}
		if err == nil {
			continue // one that was changed meanwhile is tried again
		}
		failed = err
		if _, answered := errors.AsType[*kubeapi.StatusError](err); !answered || errors.Is(err, keystore.ErrReadOnly) {
			break
		}
	}
	return failed
}

// statusOf puts a verdict into the words of Kubernetes. A message has nothing that changes from one look to the next: each
// write is a new revision of the object.
func statusOf(s watch.Seen) kubestore.Status {
	published := kubestore.Condition{Type: "Published", Status: "False"}
	const more = "; keypost verify %s, and the log of keypost watch, say where"
	switch s.Verdict {
	case watch.Everywhere:
		published.Status, published.Reason, published.Message = "True", "SeenEverywhere", "the stored keys, and no other, were seen wherever relying parties find them: at every address, and in every upload that the policy names"
	case watch.Ended:
		published.Reason, published.Message = "Withdrawn", "the issuer was withdrawn: its documents are served no more"
	case watch.Rogue:
		published.Reason, published.Message = "RogueKey", fmt.Sprintf("a key is published that the store does not know"+more, s.KeySet)
	case watch.Different:
		published.Reason, published.Message = "ServedNotStored", fmt.Sprintf("keys are published otherwise than they are stored, longer than caches explain"+more, s.KeySet)
	case watch.NotYet:
		published.Reason, published.Message = "OlderCopies", "some answer or upload is an older one, as a cache may give it for a while"
	default:
		published.Status, published.Reason, published.Message = "Unknown", "NotSeenWhole", fmt.Sprintf("some address did not answer, is not public, or could not be compared with the store, or an upload was not read back"+more, s.KeySet)
	}
	ready := published
	ready.Type = "Ready"
	if s.Verdict == watch.Ended { // there is nothing to wait for
		ready.Status = "True"
	}
	return kubestore.Status{Generation: s.Generation, Conditions: []kubestore.Condition{published, ready}}
}
