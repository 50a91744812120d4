package listen

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme/autocert"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// patientCache is a directory of certificates on a file system that may hang, with entries that may be no files.
type patientCache struct {
	autocert.DirCache
	hangs   *hang.Guard
	reading chan struct{} // one per reading under way; nil: as many as hangs allows
	read    func(file string, limit int64) ([]byte, error)
}

// readingsAtOnce bounds what strangers cause, by handshakes for the CA's challenge: each reading that hangs keeps a thread. It is more than
// a CA asks for, from its several places; a reading takes microseconds.
const readingsAtOnce = 8

func newPatientCache(dir autocert.DirCache, hangs *hang.Guard) *patientCache {
	return &patientCache{DirCache: dir, hangs: hangs, read: regular.Read}
}

// forStrangers returns the cache as strangers have it read: what they wait for holds nobody else up.
func (c *patientCache) forStrangers() quietCache {
	bounded := *c
	bounded.reading = make(chan struct{}, readingsAtOnce)
	return quietCache{&bounded}
}

// errCrowded means that readings of other entries were under way for all the time that one may take.
var errCrowded = errors.New("the certificate cache was not read: other readings take too long")

// turn waits until one more reading may begin. That time is none of the reading's: a file behind others does not hang.
func (c *patientCache) turn(ctx context.Context) (end func(), err error) {
	if c.reading == nil {
		return func() {}, nil
	}
	patience := time.NewTimer(hang.Patience)
	defer patience.Stop()
	select {
	case c.reading <- struct{}{}:
		return sync.OnceFunc(func() { <-c.reading }), nil
	case <-patience.C:
		return nil, errCrowded
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Get returns autocert.ErrCacheMiss for an entry that is not there, or is empty: autocert.DirCache renames without fsync, so that a
// power cut can leave that, and an account's key without a byte would end all orders for good.
func (c *patientCache) Get(ctx context.Context, key string) ([]byte, error) {
	file := c.file(key)
	end, err := c.turn(ctx)
	if err != nil {
		return nil, err
	}
	var begun atomic.Bool
	data, err := hang.Await(ctx, c.hangs, file, func() ([]byte, error) {
		begun.Store(true)
		defer end() // when it has come back, which may be long after it was given up
		return c.read(file, chain.MaxPEM)
	})
	if !begun.Load() {
		end()
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return nil, autocert.ErrCacheMiss
	}
	return data, err
}

// file is where autocert.DirCache has an entry.
func (c *patientCache) file(key string) string {
	return filepath.Join(string(c.DirCache), filepath.Clean("/"+key))
}

func (c *patientCache) Put(ctx context.Context, key string, data []byte) error {
	return hang.Do(ctx, c.hangs, c.file(key), func() error { return c.DirCache.Put(ctx, key, data) })
}

func (c *patientCache) Delete(ctx context.Context, key string) error {
	return hang.Do(ctx, c.hangs, c.file(key), func() error { return c.DirCache.Delete(ctx, key) })
}

// quietCache gives no error of reading but ErrCacheMiss: autocert shows others to the client, with the path in them. It is for reading
// only: autocert would take such a miss for a reason to make another account.
type quietCache struct{ autocert.Cache }

func (quietCache) Put(context.Context, string, []byte) error { return errOnlyWatch }
func (quietCache) Delete(context.Context, string) error      { return errOnlyWatch }

func (c quietCache) Get(ctx context.Context, key string) ([]byte, error) {
	data, err := c.Cache.Get(ctx, key)
	if err != nil {
		return nil, autocert.ErrCacheMiss
	}
	return data, nil
}
