package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
)

// mountData is the symbolic link that kubelet swaps to change all files of a mounted ConfigMap at once.
const mountData = "..data"

// identityCheck is how often Watch looks whether the path still leads to the directory that is watched: the kernel
// says nothing when a symbolic link on the way to it changes (git-sync) or something is mounted over it.
const identityCheck = 500 * time.Millisecond

// Watch calls changed once when the watch is established, since changes before that were not seen, and then for every change
// of a document, until ctx is done (it then returns ctx's error) or the directory is no longer there to be watched.
func (s *Backend) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.dir, err)
	}
	defer w.Close() //nolint:errcheck // nothing was written
	was, err := hang.Await(ctx, &s.hangs, s.dir, func() (stamp, error) {
		st, err := s.disk.Stat(s.dir)
		if err == nil {
			err = w.Add(s.dir)
		}
		return st, err
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", s.dir, err)
	}
	changed()
	tick := time.NewTicker(identityCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.Events:
			err = s.pass(e, changed)
		case err = <-w.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				changed()
				err = nil
			}
		case <-tick.C:
			err = s.same(ctx, was)
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", s.dir, err)
		}
	}
}

var errReplaced = errors.New("the directory was moved, removed or replaced")

func (s *Backend) same(ctx context.Context, was stamp) error {
	now, err := hang.Await(ctx, &s.hangs, s.dir, func() (stamp, error) { return s.disk.Stat(s.dir) })
	if err == nil && (now.dev != was.dev || now.ino != was.ino) {
		return errReplaced
	}
	return err
}

// pass turns an event into names. An event of the directory itself means that it was removed or moved; a closed
// channel gives an event without a name.
func (s *Backend) pass(e fsnotify.Event, changed func(...keystore.Name)) error {
	base := filepath.Base(e.Name)
	n, isDocument := nameOf(base)
	switch {
	case e.Name == s.dir && !e.Has(fsnotify.Remove|fsnotify.Rename): // its mode or times
		changed()
	case e.Name == s.dir || e.Name == "":
		return errReplaced
	case base == mountData:
		changed()
	case isDocument:
		changed(n)
	}
	return nil
}
