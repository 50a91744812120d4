// Package renewal is what autocert sees of a cache of certificates while it is to order one that is there already.
package renewal

import (
	"context"
	"sync"

	"golang.org/x/crypto/acme/autocert"
)

// Cache hides the certificate that is to be renewed, or autocert would give it back instead of ordering. It holds the new one back:
// the caller judges it before it takes the place of the old one. All else goes through. It may be used concurrently.
type Cache struct {
	autocert.Cache
	Host string

	mu    sync.Mutex
	fresh []byte // nil until there is one
}

// Get is part of autocert.Cache.
func (c *Cache) Get(ctx context.Context, key string) ([]byte, error) {
	if key == c.Host && c.Ordered() == nil {
		return nil, autocert.ErrCacheMiss
	}
	return c.Cache.Get(ctx, key)
}

// Put is part of autocert.Cache.
func (c *Cache) Put(ctx context.Context, key string, data []byte) error {
	if key != c.Host {
		return c.Cache.Put(ctx, key, data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh = data
	return nil
}

// Ordered returns the new key and chain, or nil.
func (c *Cache) Ordered() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh
}
