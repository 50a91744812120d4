package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
	"golang.org/x/sys/unix"
)

const lockName = ".keypost.lock"

// Put replaces the file under the writers' lock, and returns once the new one is durable (package durable). Else a key set
// that was reported as stored could come back as it was before, with a revoked key in it.
func (s *Backend) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a Put that its caller has given up must not begin to write
	return hang.Await(ctx, &s.hangs, s.dir, func() (keystore.Revision, error) { return s.put(ctx, n, old, doc) })
}

func (s *Backend) put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	path, ok := s.file(n)
	if !ok {
		return "", fmt.Errorf("%q is not the name of a document in %s", n, s.dir)
	}
	if _, err := s.disk.Stat(filepath.Join(s.dir, mountData)); err == nil { // the error of a read-only mount would not say what to do
		return "", fmt.Errorf("%w: %s is a mounted ConfigMap or Secret; change that instead", keystore.ErrReadOnly, s.dir)
	}
	unlock, err := lock(ctx, filepath.Join(s.dir, lockName))
	if err != nil {
		return "", readOnly(err)
	}
	defer unlock()
	if err := s.unchanged(path, old); err != nil {
		return "", err
	}
	s.removeLeftovers()
	if err := s.write(ctx, path, doc); err != nil {
		return "", err
	}
	return revisionOf(doc), nil
}

// unchanged returns an error unless the stored revision is old.
func (s *Backend) unchanged(path string, old keystore.Revision) error {
	d, err := read(s.disk, path, syscall.O_NOFOLLOW)
	var unfit *unfitError
	switch {
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%w: %s is a symbolic link; change the document that it points to, in its own directory", keystore.ErrReadOnly, path)
	case errors.Is(err, fs.ErrNotExist) && old == "":
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is gone", keystore.ErrConflict, path)
	case err != nil && !errors.As(err, &unfit):
		return err
	case old != d.revision():
		return fmt.Errorf("%w: %s has another revision", keystore.ErrConflict, path)
	}
	return nil
}

// cleanEvery bounds how often a change of one key set costs a reading of the whole directory.
const cleanEvery = time.Minute

// removeLeftovers removes what writers left that were killed, now and then. No other writer is at work, since this one has the
// lock. Should one be, without a lock that works, then its rename fails: names are random for that reason. A leftover
// that cannot be removed does no harm: it is hidden.
func (s *Backend) removeLeftovers() {
	now := s.now().UnixNano()
	if last := s.cleaned.Load(); last != 0 && now-last < int64(cleanEvery) {
		return
	}
	s.cleaned.Store(now)
	bases, err := s.disk.Names(s.dir)
	if err != nil {
		return
	}
	for _, b := range bases {
		if s.writer().IsTemp(b) {
			_ = s.disk.Remove(filepath.Join(s.dir, b))
		}
	}
}

func (s *Backend) write(ctx context.Context, path string, doc []byte) error {
	w := s.writer()
	staged, err := w.Stage(path, doc)
	switch {
	case err != nil:
	case ctx.Err() != nil: // the last moment at which giving up means that nothing happened
		_ = staged.Remove()
		err = ctx.Err()
	default:
		err = staged.Rename()
	}
	if err != nil {
		s.cleaned.Store(0) // a temporary file may be left; the next writer removes it
		return readOnly(err)
	}
	if err := w.SyncDir(s.dir); err != nil {
		return fmt.Errorf("%w: %w", keystore.ErrNotDurable, err)
	}
	return nil
}

// writer makes temporary files named .keypost-….tmp.
func (s *Backend) writer() durable.Writer {
	return durable.Writer{FS: writing{s.disk}, Owner: "keypost"}
}

// writing is a disk as a [durable.FS]. The disk gives files their mode.
type writing struct{ disk }

func (d writing) Create(name string, _ fs.FileMode) (durable.File, error) {
	return d.disk.Open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
}

func (d writing) Open(name string) (durable.File, error) { return d.disk.Open(name, os.O_RDONLY) }

// readOnly wraps errors of permission in ErrReadOnly; nothing was written when one of them occurs.
func readOnly(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w: %w", keystore.ErrReadOnly, err)
	}
	return err
}

// lock waits until only this caller holds the lock at path. The kernel drops the lock when the process ends, however
// it ends; that is why it is a lock on a file and not a file that is a lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		f, err := lockOnce(ctx, path)
		if err != nil {
			return nil, err
		}
		// Another one may have removed the file before it was locked, and then locks a new one.
		if named(f, path) {
			return func() { unlockFile(f, path) }, nil
		}
		if err := errors.Join(f.Close(), ctx.Err()); err != nil {
			return nil, err
		}
	}
}

// unlockFile removes the file and unlocks it, so that a Git checkout shows nothing but key sets. A waiting writer sees that
// the file it has locked is no longer at path. A file that cannot be removed stays, as it does when a writer is killed.
func unlockFile(f *os.File, path string) {
	if named(f, path) {
		_ = os.Remove(path)
	}
	_ = f.Close() // which unlocks
}

// named reports whether f is the file at path.
func named(f *os.File, path string) bool {
	locked, err := (osFile{f}).Stat()
	if err != nil {
		return false
	}
	there, err := (osDisk{}).Stat(path)
	return err == nil && there.dev == locked.dev && there.ino == locked.ino
}

func lockOnce(ctx context.Context, path string) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }) }()
	select {
	case err := <-done:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		return f, nil
	case <-ctx.Done():
		go func() { <-done; _ = f.Close() }() // flock cannot be interrupted: let go as soon as it has got it
		return nil, ctx.Err()
	}
}

// openLock opens the lock, or makes it for everybody who may write the directory, whatever the umask. Nobody else may even open
// it: anyone who could lock it for reading could hold up every writer.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	var dir unix.Stat_t
	if unix.Stat(filepath.Dir(path), &dir) == nil { // both changes fail on the lock of another user, who has made them
		writers := os.FileMode(dir.Mode & 0o022)
		if f.Chown(int(dir.Uid), int(dir.Gid)) != nil && f.Chown(-1, int(dir.Gid)) != nil { // root leaves the owner a lock that he can open
			writers &^= 0o020 // a group of this user's, not the directory's
		}
		_ = f.Chmod(0o600 | writers | writers<<1)
	}
	return f, nil
}
