package signingkey

import (
	"bytes"
	"crypto"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keypost/keypost/internal/durable"
	"github.com/keypost/keypost/internal/keypem"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Load reads the one private key of a PEM file (PKCS#1, PKCS#8, SEC 1). The error wraps [fs.ErrNotExist] when there is
// no file.
func Load(path string) (Private, error) {
	data, err := regular.Read(path, pubkey.MaxSize)
	if err != nil {
		return Private{}, err
	}
	keys, _, _, err := PublicHalf(path, data)
	if err != nil {
		return Private{}, err
	}
	if len(keys) != 1 {
		return Private{}, fmt.Errorf("read a signing key from %s: it holds %d keys, and a cluster signs with one", path, len(keys))
	}
	var signer crypto.Signer
	_, _ = keypem.Each(data, func(_ int, block *pem.Block) error { // PublicHalf has found each of them sound
		if s := parsePrivate(block.Bytes); s != nil {
			signer = s
		}
		return nil
	})
	if signer != nil {
		return Private{signer: signer, public: keys[0]}, nil
	}
	return Private{}, fmt.Errorf("read a signing key from %s: it holds only the public half", path)
}

// OpenToOthers reports whether others than its owner may read a file, and its mode. ccoctl writes private keys so.
func OpenToOthers(path string) (fs.FileMode, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	return info.Mode().Perm(), info.Mode().Perm()&0o044 != 0
}

// WritePublic puts only the public half into a new file, as Write does.
func (p Private) WritePublic(path string) error {
	return writeNew(path, []byte(p.public.PEM()), 0o644)
}

// Install puts the private key where an installer takes it from: complete and durable under another name first, mode
// 0600. A file that holds this key or the beginning of it becomes a clean copy; anything else is left as it is, with an
// error that wraps [fs.ErrExist]: it may be the only copy of the key that a cluster signs with.
func (p Private) Install(path string) error {
	data, err := p.privatePEM()
	if err != nil {
		return err
	}
	if err := removeTemps(filepath.Dir(path)); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return installed().Replace(path, data)
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: %w and is not a regular file; move it away", path, fs.ErrExist)
	}
	there, err := regular.Read(path, pubkey.MaxSize)
	switch {
	case err != nil:
		return err
	case bytes.Equal(there, data):
		return os.Chmod(path, 0o600)
	case p.nothingElse(path, there) || len(there) < len(data) && bytes.HasPrefix(data, there):
		return installed().Replace(path, data)
	}
	return fmt.Errorf("%s: %w and holds something else than signing key %s; move it away, or use its key", path, fs.ErrExist, p.public.ID())
}

// nothingElse reports whether the file has no other key in it, but perhaps the end of one: ccoctl leaves that when it
// writes a key over a longer one.
func (p Private) nothingElse(path string, data []byte) bool {
	keys, _, _, err := PublicHalf(path, data)
	return err == nil && len(keys) == 1 && keys[0].Equal(p.public)
}

// installed writes private keys with mode 0600.
func installed() durable.Writer { return durable.Writer{Owner: "keypost-key"} }

// removeTemps removes the private keys that killed programs left under temporary names. Two runs at once into one
// directory are not supported.
func removeTemps(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	return installed().RemoveTemps(root, ".", 0)
}
