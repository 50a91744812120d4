package open

import (
	"errors"
	"os"
	"path/filepath"
)

// ForObservations returns u as the place for observations of the key sets in store, or a [*URLError]. They need a place
// of their own: anyone who may record a look could publish keys otherwise, and readers of the key sets would take each
// record for a broken one. In a namespace they are another resource, with rights of its own.
func (u URL) ForObservations(store URL) (URL, error) {
	if u.scheme != schemeKubernetes && u.same(store) {
		return URL{}, &URLError{Err: errors.New("observations and key sets are in the same place; anyone who may observe must not be able to publish keys, so give each its own directory or prefix")}
	}
	u.observations = true
	return u, nil
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
	x, errX := filepath.Abs(u.Dir)
	y, errY := filepath.Abs(other.Dir)
	return errX == nil && errY == nil && x == y // a directory that is missing is compared again once it is there
}
