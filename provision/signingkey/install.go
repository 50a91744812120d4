package signingkey

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keypost/keypost/keystore"
)

// Load reads the one private key of a PEM file (PKCS#1, PKCS#8, SEC 1). The error wraps [fs.ErrNotExist] when there is
// no file.
func Load(path string) (Private, error) {
	data, err := readFile(path)
	if err != nil {
		return Private{}, err
	}
	keys, err := PublicHalf(path, data)
	if err != nil {
		return Private{}, err
	}
	if len(keys) != 1 {
		return Private{}, fmt.Errorf("read a signing key from %s: it holds %d keys, and a cluster signs with one", path, len(keys))
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) { // PublicHalf has found each of them sound
		if signer := parsePrivate(block.Bytes); signer != nil {
			return Private{signer: signer, public: keys[0]}, nil
		}
	}
	return Private{}, fmt.Errorf("read a signing key from %s: it holds only the public half", path)
}

// readFile refuses what is no regular file: opening a pipe would wait for ever.
func readFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, keystore.MaxMaterial+1)) // one more than PublicHalf takes
	return data, errors.Join(err, f.Close())
}

// OpenToOthers reports whether others than its owner may read a file, and its mode. ccoctl writes private keys so.
func OpenToOthers(path string) (fs.FileMode, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&0o044 != 0
}

// WritePublic puts the public half alone into a new file, as Write does.
func (p Private) WritePublic(path string) error {
	public, err := p.publicPEM()
	if err != nil {
		return err
	}
	return writeNew(path, public, 0o644)
}

// Install puts the private key where an installer takes it from: complete and durable under another name first, mode
// 0600. A file that holds this key or the beginning of it becomes a clean copy; anything else is left as it is, with an
// error that wraps [fs.ErrExist]: it may be the only copy of the key that a cluster signs with.
func (p Private) Install(path string) error {
	data, err := p.privatePEM()
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replace(path, data)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w and is no regular file; move it away", path, fs.ErrExist)
	}
	there, err := readFile(path)
	switch {
	case err != nil:
		return err
	case bytes.Equal(there, data):
		return os.Chmod(path, 0o600)
	case p.nothingElse(path, there) || len(there) < len(data) && bytes.HasPrefix(data, there):
		return replace(path, data)
	}
	return fmt.Errorf("%s: %w and holds something else than signing key %s; move it away, or use its key", path, fs.ErrExist, p.public.ID())
}

// nothingElse tells whether the file has no other key in it, but perhaps the end of one: ccoctl leaves that when it
// writes a key over a longer one.
func (p Private) nothingElse(path string, data []byte) bool {
	keys, err := PublicHalf(path, data)
	return err == nil && len(keys) == 1 && keys[0].Equal(p.public)
}

// replace leaves a hidden file behind if the program is killed in it; package provision removes files named so.
func replace(path string, data []byte) error {
	temp := filepath.Join(filepath.Dir(path), ".keypost-"+rand.Text()+".tmp")
	if err := writeNew(temp, data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(path))
}
