// Package durable writes files that are whole or absent, and that survive a power cut once the call has returned.
//
// A replaced file goes through a temporary one in the same directory:
//
//	open(temp, O_CREAT|O_EXCL) write fsync close
//	rename(temp, name) open(directory) fsync close
//
// Without the first fsync, the new name could survive a power cut without the bytes. Without the second, the file could
// come back as it was before.
package durable

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// FS is the part of a file system that a durable write needs. The implementation defines the form of names. Errors are
// those of package os.
type FS interface {
	Create(name string, mode fs.FileMode) (File, error) // with O_EXCL: fails if name exists, also as a link
	Open(name string) (File, error)                     // opens a directory, for Sync
	Rename(from, to string) error
	Remove(name string) error
}

// File is an open file or directory. Sync returns when what was written has reached the medium; for a directory, that is
// the names in it.
type File interface {
	io.WriteCloser
	Sync() error
}

// osFS is the file system of the operating system.
type osFS struct{}

func (osFS) Create(name string, mode fs.FileMode) (File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

func (osFS) Open(name string) (File, error) { return os.Open(name) }
func (osFS) Rename(from, to string) error   { return os.Rename(from, to) }
func (osFS) Remove(name string) error       { return os.Remove(name) }

// Root is the file system below a directory; no symbolic link leads out of it.
type Root struct{ *os.Root }

// Create implements [FS]. The umask takes away from mode.
func (r Root) Create(name string, mode fs.FileMode) (File, error) {
	return r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

// Open implements [FS].
func (r Root) Open(name string) (File, error) { return r.Root.Open(name) }

// Writer writes the files of one owner. Programs that share a directory need different owners, so that none removes the
// temporary files of another.
type Writer struct {
	FS    FS          // nil: that of the operating system
	Owner string      // in the names of temporary files; required to replace files
	Mode  fs.FileMode // of new files; 0: 0600
}

func (w Writer) fs() FS {
	if w.FS == nil {
		return osFS{}
	}
	return w.FS
}

// Create makes a file that does not exist yet, under its own name. The error wraps [fs.ErrExist] if there is one, and
// nothing is left behind after any other error. A crash may leave part of the file.
func (w Writer) Create(name string, data []byte) error {
	if err := w.write(name, data); err != nil {
		return err
	}
	if err := w.SyncDir(filepath.Dir(name)); err != nil {
		return errors.Join(err, w.fs().Remove(name))
	}
	return nil
}

// Replace writes a file, and replaces one that has the name. Readers see the whole old file or the whole new one. After an
// error it may be either.
func (w Writer) Replace(name string, data []byte) error {
	s, err := w.Stage(name, data)
	if err != nil {
		return err
	}
	if err := s.Rename(); err != nil {
		return err
	}
	return w.SyncDir(filepath.Dir(name))
}

// Staged is a file that is complete and durable under a temporary name. A caller ends it with Rename and
// [Writer.SyncDir], or with Remove.
type Staged struct {
	w          Writer
	temp, name string
}

// Stage does the first half of Replace: it writes the temporary file.
func (w Writer) Stage(name string, data []byte) (*Staged, error) {
	s := &Staged{w, filepath.Join(filepath.Dir(name), w.tempPrefix()+rand.Text()+tempSuffix), name}
	if err := w.write(s.temp, data); err != nil {
		return nil, err
	}
	return s, nil
}

// Rename gives the file its name. After an error the temporary file has been removed, if that was possible.
func (s *Staged) Rename() error {
	if err := s.w.fs().Rename(s.temp, s.name); err != nil {
		return errors.Join(err, s.Remove())
	}
	return nil
}

// Remove removes the temporary file.
func (s *Staged) Remove() error { return s.w.fs().Remove(s.temp) }

// write creates a complete and durable file, or none.
func (w Writer) write(name string, data []byte) error {
	mode := w.Mode
	if mode == 0 {
		mode = 0o600
	}
	f, err := w.fs().Create(name, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, w.fs().Remove(name))
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func (w Writer) SyncDir(dir string) error {
	d, err := w.fs().Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Temporary files are hidden from a shell's * and from every known reader of such directories.
const tempSuffix = ".tmp"

func (w Writer) tempPrefix() string { return "." + w.Owner + "-" }

// IsTemp reports whether base is the name of a temporary file of w's owner. A writer that was killed leaves one behind.
func (w Writer) IsTemp(base string) bool {
	random, prefixed := strings.CutPrefix(base, w.tempPrefix())
	random, suffixed := strings.CutSuffix(random, tempSuffix)
	// The random part has capital letters and digits only, so that it cannot contain the rest of a longer owner's name.
	return prefixed && suffixed && random != "" && strings.Trim(random, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// RemoveTemps removes the owner's temporary files that are older than age from a directory below root. Another process
// may be writing a younger one.
func (w Writer) RemoveTemps(root *os.Root, dir string, age time.Duration) error {
	entries, err := fs.ReadDir(root.FS(), filepath.ToSlash(dir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !w.IsTemp(e.Name()) {
			continue
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) >= age {
			err = root.Remove(filepath.Join(dir, e.Name()))
		}
		if !errors.Is(err, fs.ErrNotExist) { // another process removed it
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
