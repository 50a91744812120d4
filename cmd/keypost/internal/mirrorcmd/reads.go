package mirrorcmd

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

// reads is a store that counts what is listed and read.
type reads struct {
	keystore.Backend
	listed, read atomic.Int64
}

// source returns the store, with its reports of changes if it has them.
func (r *reads) source() keystore.Backend {
	if w, is := r.Backend.(keystore.Watcher); is {
		return struct {
			*reads
			keystore.Watcher
		}{r, w}
	}
	return r
}

// List implements keystore.Backend.
func (r *reads) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	listed, err := r.Backend.List(ctx)
	if err == nil {
		r.listed.Store(int64(len(listed)))
	}
	return listed, err
}

// Get implements keystore.Backend.
func (r *reads) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	doc, rev, err := r.Backend.Get(ctx, n)
	if err == nil {
		r.read.Add(1)
	}
	return doc, rev, err
}

// sayEvery is how often the log says how far the first copy is.
const sayEvery = 15 * time.Second

// say logs now and then how much has been read, until the copy is whole. Where nothing was read, what keeps it from that has lines
// of its own.
func (r *reads) say(ctx context.Context, log *zap.Logger, whole func() bool) {
	said := int64(0)
	for cli.Pause(ctx, sayEvery) == nil && !whole() {
		if read := r.read.Load(); read != said {
			said = read
			log.Info("copying", zap.Int64("read", read), zap.Int64("listed", r.listed.Load()))
		}
	}
}
