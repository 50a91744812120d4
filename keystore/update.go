package keystore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keypost/keypost/keystore/history"
)

// Create stores a key set that does not exist yet.
func Create(ctx context.Context, st *Store, s KeySet) error {
	if _, err := st.Replace(ctx, "", s); err != nil {
		return fmt.Errorf("create key set %q: %w", s.Name(), err)
	}
	return nil
}

// updateTries bounds how often Update starts again after a conflict: far more than honest writers ever collide, few
// enough that a store which always conflicts is reported.
const updateTries = 64

// maxPause bounds the backoff between two tries of Update.
const maxPause = 50 * time.Millisecond

// Update reads a key set, applies change to it and stores the result with the next generation. After a conflict it
// starts again from the then stored version, after a short random pause (doubled each time, at most 50 ms), 64 times at
// most. So change may be called several times and must be pure. A write that fails although it was stored counts as
// success. A stored version that was made from ours ends it with an error: a second rollback would undo the first.
func Update(ctx context.Context, st *Store, n Name, change func(KeySet) (KeySet, error)) (KeySet, error) {
	var tried *Event // the line of history that the try before would have added
	once := func(was KeySet) (KeySet, error) {
		if tried != nil && history.Contains(was.body.History, *tried) {
			return KeySet{}, errOvertaken
		}
		s, err := change(was)
		tried = nil
		if h := s.body.History; len(h) > 0 && !history.Contains(was.body.History, h[len(h)-1]) {
			tried = &h[len(h)-1]
		}
		return s, err
	}
	for try := 1; ; try++ {
		s, err := updateOnce(ctx, st, n, once)
		if err == nil || !errors.Is(err, ErrConflict) || try == updateTries {
			return s, err
		}
		select {
		case <-ctx.Done():
			return KeySet{}, ctx.Err()
		case <-time.After(rand.N(min(maxPause, time.Millisecond<<min(try, 10)))): //nolint:gosec // it only keeps writers apart
		}
	}
}

// errOvertaken is about a write whose answer was lost, and on top of it somebody else has written.
var errOvertaken = errors.New("the stored version was made from it or from an equal one: whether this write took effect is unknown; " +
	"look at the key set and repeat the command if need be")

func updateOnce(ctx context.Context, st *Store, n Name, change func(KeySet) (KeySet, error)) (KeySet, error) {
	was, rev, err := st.Load(ctx, n)
	if err != nil {
		return KeySet{}, fmt.Errorf("load key set %q: %w", n, err)
	}
	s, err := change(was)
	if err != nil {
		return KeySet{}, err
	}
	if s.Name() != n {
		return KeySet{}, fmt.Errorf("update key set %q: the change returned key set %q", n, s.Name())
	}
	if s.body.Generation == was.body.Generation { // else Accept has chosen another one
		if was.body.Generation >= MaxFirstGeneration {
			return KeySet{}, &GenerationError{n, was.body.Generation}
		}
		s.body.Generation++
	}
	if _, err := st.Replace(ctx, rev, s); err != nil {
		return KeySet{}, fmt.Errorf("replace key set %q: %w", n, err)
	}
	return s, nil
}
