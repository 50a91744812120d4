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
	"github.com/keypost/keypost/keystore"
	"golang.org/x/sys/unix"
)

const lockName = ".keypost.lock"

// Put replaces the file under the writers' lock, and returns once the new one is durable (package durable). Else a key set
// that was reported as stored could come back as it was before, with a revoked key in it.
func (s *Backend) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	path, ok := s.file(n)
	if !ok {
		return "", fmt.Errorf("%q is not the name of a document in %s", n, s.dir)
	}
	if err := s.notMounted(ctx); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(s.dir, lockName))
	if err != nil {
		return "", readOnly(err)
	}
	defer unlock()
	if err := s.unchanged(ctx, path, old); err != nil {
		return "", err
	}
	s.removeLeftovers()
	if err := s.write(ctx, path, doc); err != nil {
		return "", err
	}
	return revisionOf(doc), nil
}

// notMounted refuses a mounted ConfigMap by name: the error of the read-only mount alone would not say what to do.
func (s *Backend) notMounted(ctx context.Context) error {
	_, err := s.stat(ctx, filepath.Join(s.dir, mountData))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is a mounted ConfigMap or Secret; change that instead", keystore.ErrReadOnly, s.dir)
}

// unchanged returns an error unless the stored revision is old.
func (s *Backend) unchanged(ctx context.Context, path string, old keystore.Revision) error {
	d, err := s.read(ctx, path, syscall.O_NOFOLLOW)
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

// lock waits until this caller alone holds the lock at path. The kernel drops the lock when the process ends, however
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
	f, err := openLock(ctx, path)
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

// lockTries and lockPause bound how long openLock waits for the one who has made the file to give it its mode.
const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// openLock opens the lock, or makes it for everybody who may write the directory, whatever the umask: with a mode of its
// own, the first user of a group that shares the directory would lock out the others. Nobody else may even open it: who
// could lock it for reading could hold up every writer.
func openLock(ctx context.Context, path string) (*os.File, error) {
	for try := 1; ; try++ {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err == nil {
			shareLock(f, filepath.Dir(path))
			return f, nil
		}
		if !errors.Is(err, fs.ErrPermission) || try == lockTries {
			return nil, err
		}
		select { // it may have been made this moment
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPause):
		}
	}
}

// shareLock gives a lock of this user's the group of the directory, and the rights that group and others have to write
// there. A group that this user may not give (not being in it) gets no rights. A file system that knows
// no modes keeps what it has: this user can write.
func shareLock(f *os.File, dir string) {
	var lock, parent unix.Stat_t
	errLock := retry(func() error { return unix.Fstat(int(f.Fd()), &lock) })
	errDir := retry(func() error { return unix.Stat(dir, &parent) })
	if errLock != nil || errDir != nil || int(lock.Uid) != os.Geteuid() {
		return
	}
	mode := os.FileMode(0o600)
	inGroup := lock.Gid == parent.Gid || f.Chown(-1, int(parent.Gid)) == nil
	if parent.Mode&unix.S_IWGRP != 0 && inGroup {
		mode |= 0o060
	}
	if parent.Mode&unix.S_IWOTH != 0 {
		mode |= 0o066
	}
	if os.FileMode(lock.Mode).Perm() != mode {
		_ = f.Chmod(mode)
	}
}
