package filestore

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/keypost/keypost/keystore"
)

// A revision is the hash of a document's bytes. Times and inode numbers would not do by themselves: they have the resolution
// of the kernel's clock tick, and a freed inode is given out again at once, so that two documents of equal size could
// have equal ones. They only serve to leave unchanged files unread.
func revisionOf(data []byte) keystore.Revision {
	sum := sha256.Sum256(data)
	return keystore.Revision(base64.RawURLEncoding.EncodeToString(sum[:]))
}

// weakRevision is the revision of a file whose bytes are not read: it cannot be a key set, or cannot be opened.
func weakRevision(st stamp) keystore.Revision {
	return keystore.Revision(fmt.Sprintf("unread:%d:%d:%d:%d:%d", st.dev, st.ino, st.size, st.mtime, st.ctime))
}

// entry remembers a document's revision for as long as its stamp stays the same.
type entry struct {
	stamp    stamp
	stable   bool // the stamp was old enough when the bytes were read to show every later change
	revision keystore.Revision
}

// entry returns n's entry, the one from before if the file has not been touched since.
func (s *Backend) entry(n keystore.Name, before entry) (entry, error) {
	path, _ := s.file(n)
	st, err := s.disk.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, err
	}
	if err != nil { // a symbolic link whose target may not be looked at: Get returns the error
		return entry{revision: weakRevision(stamp{})}, nil
	}
	if before.stable && before.stamp == st {
		return before, nil
	}
	now := s.now()
	d, err := read(s.disk, path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, err
	}
	if d.stamp == (stamp{}) { // could not be opened: Get returns the error
		d.stamp = st
	}
	return entry{stamp: d.stamp, stable: err == nil && d.stamp.stable(now), revision: d.revision()}, nil
}

// racy is how long a file's times may fail to tell one change from the next: two seconds on FAT, one on old ext
// file systems, a clock tick elsewhere.
const racy = 2 * time.Second

// stable reports whether every write after now gives the file another stamp.
func (st stamp) stable(now time.Time) bool {
	return now.Sub(time.Unix(0, st.ctime)) > racy
}

// content is a document as it was read; data is nil when it was not.
type content struct {
	data  []byte
	stamp stamp
}

func (c content) revision() keystore.Revision {
	if c.data == nil {
		return weakRevision(c.stamp)
	}
	return revisionOf(c.data)
}

// unfitError reports that a file cannot be a key set, whatever it contains.
type unfitError struct{ path, why string }

func (e *unfitError) Error() string { return e.path + " " + e.why }

// read returns a file's bytes of one moment. One that is replaced by renaming gives the old or the new bytes; one that is written in
// place at that moment is an error. It opens without waiting, since a named pipe in the directory would otherwise stop the server.
func read(d disk, path string, flag int) (content, error) {
	f, err := d.Open(path, os.O_RDONLY|syscall.O_NONBLOCK|flag)
	if errors.Is(err, syscall.ENXIO) {
		st, err := d.Stat(path)
		return content{stamp: st}, cmp.Or[error](err, &unfitError{path, "is a socket or device, not a file"})
	}
	if err != nil {
		return content{}, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	before, err := f.Stat()
	if err != nil {
		return content{}, err
	}
	c := content{stamp: before}
	switch {
	case !before.regular():
		return c, &unfitError{path, "is not a regular file"}
	case before.size == 0: // never read: so is /proc/kmsg, whose reader waits for the kernel to say something
		return c, &unfitError{path, "is empty, or no file that is stored on a disk"}
	case before.size > keystore.MaxDocument:
		return c, &unfitError{path, fmt.Sprintf("has %d bytes; a key set has at most %d", before.size, keystore.MaxDocument)}
	}
	data := make([]byte, before.size+1) // one more, to see it grow
	n, err := io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return c, err
	}
	after, err := f.Stat()
	if err != nil {
		return c, err
	}
	if int64(n) != before.size || after.size != before.size || after.mtime != before.mtime {
		return c, fmt.Errorf("read %s: it changed while it was read; writers must replace it by rename", path)
	}
	c.data = data[:n]
	return c, nil
}
