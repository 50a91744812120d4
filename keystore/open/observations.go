package open

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/kubestore"
)

// ObservationForms lists the forms of URLs of places for observations, for messages.
const ObservationForms = "file:///DIR, s3://BUCKET/PREFIX?region=REGION or kubernetes://NAMESPACE"

// CheckObservations returns a [*URLError] unless u can keep the observations of the key sets in store. They need a place
// of their own: anyone who may record a look could publish keys otherwise, and readers of the key sets would take each
// record for a broken one. In a namespace they are another resource, with rights of its own.
func (u URL) CheckObservations(store URL) error {
	if u.scheme != schemeKubernetes && u.same(store) {
		return &URLError{Err: errors.New("observations and key sets are in the same place; anyone who may observe must not be able to publish keys, so give each its own directory or prefix")}
	}
	return nil
}

// CreateObservations opens u for observations, and makes the directory if only that is missing.
func (u URL) CreateObservations(ctx context.Context, store URL) (keystore.Backend, error) {
	return u.observations(ctx, store, filestore.Create)
}

// Observations opens u for observations. The error is a [*MissingDirError] if it is a directory that does not exist.
func (u URL) Observations(ctx context.Context, store URL) (keystore.Backend, error) {
	return u.observations(ctx, store, filestore.Open)
}

func (u URL) observations(ctx context.Context, store URL, openDir func(string) (*filestore.Backend, error)) (keystore.Backend, error) {
	if err := u.CheckObservations(store); err != nil {
		return nil, err
	}
	if u.scheme == schemeKubernetes {
		return backend(kubestore.OpenObservations(ctx, u.namespace, u.kubernetes))
	}
	return u.open(ctx, openDir)
}

// same reports whether both URLs lead to the same documents, with whatever rights. Buckets of one name on two servers
// count as one: an endpoint has many spellings.
func (u URL) same(other URL) bool {
	if u.scheme != other.scheme {
		return false
	}
	if u.scheme == schemeS3 {
		return u.s3.Bucket == other.s3.Bucket && u.s3.Prefix == other.s3.Prefix
	}
	a, errA := os.Stat(u.Dir)
	b, errB := os.Stat(other.Dir)
	if errA == nil && errB == nil {
		return os.SameFile(a, b)
	}
	return absolute(u.Dir) == absolute(other.Dir)
}

// absolute returns the path of a directory that may be missing, without the links above it.
func absolute(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		return filepath.Clean(dir)
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(parent, filepath.Base(path))
	}
	return path
}
