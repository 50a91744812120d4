// Package keyfiles holds the private keys of a directory, each a signer.Key. A new file is picked up without a restart.
package keyfiles

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"github.com/keypost/keypost/internal/signingkey"
)

// Dir is a directory of PEM files, NAME.pem or NAME.key, with one private key each. NAME has letters, digits, dots, hyphens and
// underscores; other files are passed over. Only the owner and the group may read the files or write to the directory. A Dir is not safe
// for concurrent use.
type Dir struct {
	path string
	seen map[string]file
	turn chan struct{} // taken while a signature is made
}

// file is what was read of a file, and what shows that it has changed.
type file struct {
	info fs.FileInfo
	key  signingkey.Private
	err  error
}

// unchanged reports whether info has the same bytes. A key may have the size and the time of the one that it replaces.
func (f file) unchanged(info fs.FileInfo) bool {
	return f.info != nil && f.err == nil && os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime()) && f.info.Mode() == info.Mode()
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*\.(pem|key)$`)

// Open returns the directory. It reads nothing yet.
func Open(path string) *Dir {
	return &Dir{path, map[string]file{}, make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Key is a private key and the file that it was read from.
type Key struct {
	signingkey.Private
	File string
	turn chan struct{}
}

// Sign waits for a processor: thousands of signatures at once would keep a revocation from being read for seconds.
func (k Key) Sign(ctx context.Context, digest []byte, hash crypto.Hash) ([]byte, error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
		return k.Private.Sign(ctx, digest, hash)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Keys returns the keys, sorted by file. It reads only files that have changed. The error names each file that cannot be used; the
// keys of the others are returned with it.
func (d *Dir) Keys(context.Context) ([]Key, error) {
	info, err := os.Stat(d.path)
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("every user of this machine can write to %s; run chmod 700 on it", d.path)
	}
	if err != nil {
		return nil, fmt.Errorf("list the private keys: %w", err)
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list the private keys: %w", err)
	}
	now := map[string]file{}
	var keys []Key
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if !nameForm.MatchString(name) {
			continue
		}
		f := d.read(name)
		now[name] = f
		if f.err != nil {
			errs = append(errs, f.err)
			continue
		}
		keys = append(keys, Key{f.key, name, d.turn})
	}
	d.seen = now
	return keys, errors.Join(errs...)
}

// read returns what was read before, unless the file has changed.
func (d *Dir) read(name string) file {
	path := filepath.Join(d.path, name)
	info, err := os.Stat(path)
	if err != nil {
		return file{err: err}
	}
	if was := d.seen[name]; was.unchanged(info) {
		return was
	}
	f := file{info: info}
	if info.Mode().Perm()&0o007 != 0 {
		f.err = fmt.Errorf("%s: every user of this machine can reach this private key; run chmod 600 on it", path)
		return f
	}
	f.key, f.err = signingkey.Load(path)
	return f
}
