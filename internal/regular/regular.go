// Package regular reads regular files from a path under somebody else's control. It never blocks, as opening a named pipe
// would, and never reads without end, as from a device.
package regular

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/keypost/keypost/internal/hang"
)

// ErrUnfit is wrapped by the errors of files that are not regular or are too large.
var ErrUnfit = errors.New("file is unfit")

// Read returns the content of a regular file of at most limit bytes. It follows symbolic links. The error wraps
// [ErrUnfit] for anything else that has the name, and the error of package os if the file cannot be opened.
//
// It reads nothing from a file whose size is 0: files in /proc have that size, and reading some of them blocks.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return read(f, err, path, limit)
}

// ReadOnce is [Read] for a file that is never read again. A file system that hangs is given up on.
func ReadOnce(path string, limit int64) ([]byte, error) {
	return hang.Await(context.Background(), new(hang.Guard), path, func() ([]byte, error) { return Read(path, limit) })
}

// ReadIn is [Read] for a file below root. No symbolic link leads it out of root.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return read(f, err, name, limit)
}

func read(f *os.File, err error, name string, limit int64) ([]byte, error) {
	if errors.Is(err, syscall.ENXIO) { // a socket, or a device that is absent
		return nil, unfit("%s is not a regular file", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, unfit("%s is not a regular file", name)
	case info.Size() > limit:
		return nil, unfit("%s is larger than %d bytes", name, limit)
	case info.Size() == 0:
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may have grown
	if err == nil && int64(len(data)) > limit {
		return nil, unfit("%s is larger than %d bytes", name, limit)
	}
	return data, err
}

// unfitError matches ErrUnfit but shows only the reason.
type unfitError struct{ reason string }

func unfit(format string, args ...any) error { return &unfitError{fmt.Sprintf(format, args...)} }

func (e *unfitError) Error() string        { return e.reason }
func (e *unfitError) Is(target error) bool { return target == ErrUnfit }
