package filestore

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// disk has every call that the store makes to the file system, except for its lock and its watch, so that tests can cut
// the power between any two of them. Errors are those of package os.
type disk interface {
	Open(path string, flag int) (file, error) // a file that it creates has mode 0644
	Stat(path string) (stamp, error)          // follows symbolic links
	Names(dir string) ([]string, error)       // complete or an error
	Rename(from, to string) error
	Remove(path string) error
}

// file is an open file or directory. Sync returns once everything written to it has reached the medium; for a
// directory, the renames in it.
type file interface {
	io.ReadWriteCloser
	Sync() error
	Stat() (stamp, error)
}

// stamp identifies a file's state, so that an unchanged file need not be read. Times are in nanoseconds since 1970.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
	mode         uint32
}

func (st stamp) regular() bool { return st.mode&unix.S_IFMT == unix.S_IFREG }

func newStamp(st *unix.Stat_t) stamp {
	return stamp{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size, //nolint:gosec,unconvert,nolintlint // the type differs between systems
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		mode: uint32(st.Mode), //nolint:unconvert,nolintlint // the type differs between systems
	}
}

type osDisk struct{}

type osFile struct{ *os.File }

func (osDisk) Open(path string, flag int) (file, error) {
	f, err := os.OpenFile(path, flag, 0o644) //nolint:gosec // public data
	if err != nil {
		return nil, err
	}
	if flag&os.O_CREATE != 0 {
		if err := f.Chmod(0o644); err != nil { // a umask of 077 would hide the document from the server
			return nil, errors.Join(err, f.Close(), os.Remove(path))
		}
	}
	return osFile{f}, nil
}

func (osDisk) Stat(path string) (stamp, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(path, &st) }); err != nil {
		return stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return newStamp(&st), nil
}

func (f osFile) Stat() (stamp, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return stamp{}, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return newStamp(&st), nil
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (osDisk) Names(dir string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0) // a pipe in its place would wait for a writer
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) Remove(path string) error     { return os.Remove(path) }
