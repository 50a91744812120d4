// Package open opens the store that a URL names: a directory, a bucket or a namespace. It promises that no error repeats
// a password, user name or parameter of a URL. It links every backend, so that only the command line uses it.
package open

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/kubestore"
	"github.com/keypost/keypost/keystore/s3store"
)

// The schemes of store URLs.
const (
	schemeFile       = "file"
	schemeS3         = "s3"
	schemeKubernetes = "kubernetes"
)

// URL is a parsed store URL: where the store is, and with whose rights it is opened. [Parse] makes one.
type URL struct {
	Dir string // the directory of a file store; empty for other stores

	scheme       string
	s3           s3store.Options
	namespace    string
	kubernetes   kubestore.Options
	observations bool // it holds those, not key sets
}

// Backend opens the backend, which must exist. The error is a [*MissingDirError] if it is a directory that does not.
func (u URL) Backend(ctx context.Context) (keystore.Backend, error) {
	return u.open(ctx, filestore.Open)
}

// Source is Backend for a program that outlives outages of the store: the directory of a file store may be missing for now.
func (u URL) Source(ctx context.Context) (keystore.Backend, error) {
	return u.open(ctx, filestore.At)
}

// Create is Backend, and makes the directory of a file store if only that is missing. A bucket or a namespace is somebody
// else's to make.
func (u URL) Create(ctx context.Context) (keystore.Backend, error) {
	return u.open(ctx, filestore.Create)
}

// Place names in full what a backend of this package holds, without credentials: the absolute path of a directory, the address
// of an API server and a namespace, or an endpoint, region, bucket and prefix. Two places are the same store only if they are
// equal. It is empty for a backend that is not of this package.
func Place(b keystore.Backend) string {
	switch b := b.(type) {
	case *filestore.Backend:
		return fileURL(b.Dir())
	case *kubestore.Backend:
		return b.Place()
	case *s3store.Backend:
		return b.Place()
	}
	return ""
}

func (u URL) open(ctx context.Context, openDir func(string) (*filestore.Backend, error)) (keystore.Backend, error) {
	switch u.scheme {
	case schemeS3:
		return backend(s3store.Open(ctx, u.s3))
	case schemeKubernetes:
		if u.observations {
			return backend(kubestore.OpenObservations(ctx, u.namespace, u.kubernetes))
		}
		return backend(kubestore.Open(ctx, u.namespace, u.kubernetes))
	}
	b, err := openDir(u.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		missing := &MissingDirError{Dir: u.Dir}
		parent := filepath.Dir(filepath.Clean(u.Dir))
		if info, err := os.Stat(parent); err != nil || !info.IsDir() {
			missing.Parent = parent
		}
		return nil, missing
	}
	return backend(b, err)
}

// backend keeps a nil pointer from becoming a Backend that is not nil.
func backend[B keystore.Backend](b B, err error) (keystore.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// MissingDirError reports that the directory of a file store does not exist. One that existed before may be a volume that
// is not mounted. It matches [fs.ErrNotExist].
type MissingDirError struct {
	Dir    string
	Parent string // the directory to hold Dir, if that is missing too; else empty
}

func (e *MissingDirError) Error() string {
	if e.Parent != "" {
		return fmt.Sprintf("open key store %s: there is no directory %s", e.Dir, e.Parent)
	}
	return fmt.Sprintf("open key store %s: the directory does not exist", e.Dir)
}

// Is reports whether target is fs.ErrNotExist.
func (e *MissingDirError) Is(target error) bool { return target == fs.ErrNotExist }
