// Package filestore keeps key sets in a directory: one document per key set, NAME.yaml. It promises that a reader sees
// the whole old or the whole new document and never a mix, that a change which was reported as done survives a power
// cut, and that of several writers, in one process or in many, none undoes another's change.
//
// The directory may as well be a Git checkout or a mounted ConfigMap (then it is read-only): a [Backend] reads documents
// wherever they come from, and looks at nothing but names, sizes and times as long as nothing changes. Readers take no lock
// and need no write permission. Writers share the hidden file .keypost.lock while they write; only one that is killed
// leaves it behind, or a .keypost-*.tmp.
//
// Who may write the directory can make relying parties trust keys. Documents are public data: files are made with
// mode 0644 whatever the umask, so that a server under another user can read them.
package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
)

// Backend is a directory of key sets. It implements [keystore.Backend] and [keystore.Watcher] and is safe for concurrent
// use, also by several processes.
type Backend struct {
	dir  string
	disk disk
	now  func() time.Time
	seen atomic.Pointer[map[keystore.Name]entry] // what the latest List found; replaced whole

	hangs   hang.Guard   // of the directory as a whole: every call goes through it
	cleaned atomic.Int64 // when this Backend last removed leftovers, in nanoseconds since 1970
}

var (
	_ keystore.Backend = (*Backend)(nil)
	_ keystore.Watcher = (*Backend)(nil)
)

// At returns the store in dir, which may be missing: every method returns an error until it is there.
func At(dir string) (*Backend, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open key store %s: %w", dir, err)
	}
	return newBackend(abs, osDisk{}), nil
}

// Open returns the store in dir, which must exist: a directory that is missing may be a volume that is not mounted,
// and starting over with an empty one would hide that.
func Open(dir string) (*Backend, error) {
	s, err := At(dir)
	if err != nil {
		return nil, err
	}
	info, err := hang.Await(context.Background(), new(hang.Guard), s.dir, func() (os.FileInfo, error) { return os.Stat(s.dir) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open key store %s: the directory does not exist; make it, or mount what holds it: %w", dir, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("open key store %s: %w", dir, err)
	case !info.IsDir():
		return nil, fmt.Errorf("open key store %s: it is not a directory", dir)
	}
	return s, nil
}

// Create makes dir with mode 0755, whatever the umask, if it does not exist, within a parent that does, and opens it.
func Create(dir string) (*Backend, error) {
	err := os.Mkdir(dir, 0o755) //nolint:gosec // public data, read by a server under another user
	if err == nil {
		err = publish(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create key store: %w", err)
	}
	return Open(dir)
}

// publish lets everybody read a directory that was just made, and makes it durable. A umask of 077 would hide the key
// sets from the server. What the parent has passed on, such as setgid, stays.
func publish(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		err = os.Chmod(dir, info.Mode()|0o755)
	}
	if err != nil {
		return err
	}
	return durable.Writer{}.SyncDir(filepath.Dir(filepath.Clean(dir)))
}

// patience is how long one call may take before the file system counts as one that hangs. Until that call comes back, no other
// is made, and the callers get an error at once.
const patience = 20 * time.Second

func newBackend(dir string, d disk) *Backend {
	s := &Backend{dir: dir, disk: d, now: time.Now, hangs: hang.Guard{Patience: patience}}
	s.seen.Store(&map[keystore.Name]entry{})
	return s
}

// Dir returns the directory as an absolute path.
func (s *Backend) Dir() string { return s.dir }

const (
	suffix = ".yaml"
	// maxFileName is the longest file name that file systems take, in bytes.
	maxFileName = 255

	yml = ".yml" // a suffix that people expect to work; such a file is listed under its whole name, so that it is reported
)

// nameOf is the inverse of file. Hidden files are the store's own, a mounted ConfigMap's, Git's, or an editor's.
func nameOf(base string) (keystore.Name, bool) {
	if strings.HasPrefix(base, ".") {
		return "", false
	}
	if strings.HasSuffix(base, yml) {
		return keystore.Name(base), true
	}
	n, ok := strings.CutSuffix(base, suffix)
	return keystore.Name(n), ok
}

// file returns the path of n's document; ok is false when no file of this store can have that name, such as one that
// leads out of the directory.
func (s *Backend) file(n keystore.Name) (path string, ok bool) {
	if n == "" || n[0] == '.' || strings.ContainsAny(string(n), "/\x00") || len(n)+len(suffix) > maxFileName {
		return "", false
	}
	if strings.HasSuffix(string(n), yml) {
		return filepath.Join(s.dir, string(n)), true
	}
	return filepath.Join(s.dir, string(n)+suffix), true
}

// Get returns the bytes of one document. With a [*keystore.BrokenError] (a file that can be not a document) it returns the
// revision of that file.
func (s *Backend) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	type result struct {
		doc []byte
		rev keystore.Revision
	}
	r, err := hang.Await(ctx, &s.hangs, s.dir, func() (result, error) {
		doc, rev, err := s.get(n)
		return result{doc, rev}, err
	})
	return r.doc, r.rev, err
}

func (s *Backend) get(n keystore.Name) ([]byte, keystore.Revision, error) {
	path, ok := s.file(n)
	if !ok {
		return nil, "", fmt.Errorf("%w in %s", keystore.ErrNotFound, s.dir)
	}
	d, err := read(s.disk, path, 0)
	var unfit *unfitError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", s.notFound()
	case errors.As(err, &unfit):
		return nil, d.revision(), &keystore.BrokenError{Name: n, Reason: keystore.ReasonBroken, Err: err}
	case err != nil: // each file has its own permissions, links and mounts
		return nil, "", &keystore.UnreadableError{Err: err}
	}
	return d.data, d.revision(), nil
}

// notFound distinguishes a missing document from a missing directory: the second is trouble, never ErrNotFound.
func (s *Backend) notFound() error {
	if _, err := s.disk.Stat(s.dir); err != nil {
		return err
	}
	return fmt.Errorf("%w in %s", keystore.ErrNotFound, s.dir)
}

// List names every key set with its revision. It reads only files that are new or whose size or times have changed
// since the previous List. Files that cannot be key sets (a wrong name, a directory, too large, unreadable) are listed too:
// Get says what is wrong with them.
func (s *Backend) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	all, err := hang.Await(ctx, &s.hangs, s.dir, s.list)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("list key sets: %w", err)
	}
	return all, err
}

// list goes on when its caller has given up: on a slow disk, the next List then finds most files read.
func (s *Backend) list() (map[keystore.Name]keystore.Revision, error) {
	before := *s.seen.Load()
	names, err := s.names(before)
	if err != nil {
		return nil, err
	}
	now := make(map[keystore.Name]entry, len(names))
	revisions := make(map[keystore.Name]keystore.Revision, len(names))
	for n := range names {
		e, err := s.entry(n, before[n])
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		now[n], revisions[n] = e, e.revision
	}
	s.seen.Store(&now)
	return revisions, nil
}

// maxListings bounds how often names reads a directory that changes meanwhile.
const maxListings = 32

var errRestless = errors.New("the directory changes faster than it can be listed")

// names adds up readings of the directory until one finds nothing new. One is not enough: tmpfs and btrfs leave files out that
// are renamed over another at that moment, although the name existed all the time (on tmpfs under a busy writer a quarter of all
// readings was incomplete, by up to a third of the names). For the same reason the names of the previous List are looked for
// one by one.
func (s *Backend) names(before map[keystore.Name]entry) (map[keystore.Name]struct{}, error) {
	names := make(map[keystore.Name]struct{}, len(before))
	for n := range before {
		names[n] = struct{}{}
	}
	for range maxListings {
		known := len(names)
		bases, err := s.disk.Names(s.dir)
		if err != nil {
			return nil, err
		}
		for _, b := range bases {
			if n, ok := nameOf(b); ok {
				names[n] = struct{}{}
			}
		}
		if len(names) == known {
			return names, nil
		}
	}
	return nil, errRestless
}
