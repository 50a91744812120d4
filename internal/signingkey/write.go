package signingkey

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keypost/keypost/internal/durable"
)

// Paths are the files for the two halves of a key.
type Paths struct {
	Private string // mode 0600
	Public  string // mode 0644, less the umask
}

// CheckFree returns an error unless both files can be made: neither exists, not even as a dangling link, and they are two. It
// spares the caller a slow step for nothing; Write makes sure with O_EXCL.
func (p Paths) CheckFree() error {
	if filepath.Clean(p.Private) == filepath.Clean(p.Public) {
		return fmt.Errorf("%s cannot hold the private and the public key at once", p.Private)
	}
	for _, path := range []string{p.Private, p.Public} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s: %w; a key file is never overwritten", path, fs.ErrExist)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Write puts the private key (PKCS#1 or SEC 1 PEM) and the public key (PKIX PEM) into two new files, durably. It
// overwrites nothing: the error wraps [fs.ErrExist] when a file is there. Both files are complete, or none is left.
func (p Private) Write(paths Paths) error {
	private, err := p.privatePEM()
	if err != nil {
		return err
	}
	if err := paths.CheckFree(); err != nil {
		return err
	}
	if err := writeNew(paths.Private, private, 0o600); err != nil {
		return err
	}
	if err := writeNew(paths.Public, []byte(p.public.PEM()), 0o644); err != nil {
		return errors.Join(err, os.Remove(paths.Private)) // ours: O_EXCL made it a moment ago
	}
	return nil
}

// writeNew makes a file, through no link that someone put there.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	err := durable.Writer{Mode: mode}.Create(path, data)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w; a key file is never overwritten", path, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
