package listen

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

// pollEvery is how often the files are read. Events would not tell of changes on network file systems, of a directory that was
// replaced, or of a certificate that becomes valid or expires.
const pollEvery = 2 * time.Second

// Watch replaces certificates when their files change, until ctx is done. A pair that LoadFiles would refuse leaves the previous one
// in use, and the other pairs are replaced all the same. Nothing is replaced where one of the hosts would lose its certificate. Trouble
// is one Warn line per change of state, and keypost_tls_reload_failing is 1.
func (f *Files) Watch(ctx context.Context, log *zap.Logger) {
	f.warnOpenKeys(ctx, log)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			f.reload(ctx, time.Now(), log)
		}
	}
}

// reload loads the files as they are now. Only Watch calls it.
func (f *Files) reload(ctx context.Context, now time.Time, log *zap.Logger) {
	old := *f.inUse.Load()
	set, refused := slices.Clone(old), make([]error, len(f.pairs))
	for i, p := range f.pairs {
		c, err := f.load(ctx, p, now)
		if ctx.Err() != nil {
			return
		}
		if err == nil && !c.Same(old[i]) {
			set[i] = c
		}
		refused[i] = err
	}
	if host := set.uncovered(f.hosts); host != "" {
		for i := range set {
			if set[i] != old[i] {
				refused[i] = fmt.Errorf("load TLS certificate %q: with it none would be for %q any longer, issue it for that name too", f.pairs[i].Cert, host)
			}
		}
		set = old
	}
	f.inUse.Store(&set)
	for i := range set {
		if set[i] != old[i] {
			log.Info("TLS certificate replaced", zap.String("certificate", f.pairs[i].Cert), zap.Time("not_after", set[i].NotAfter))
		}
		f.report(log, i, refused[i])
	}
	f.failing.Store(slices.ContainsFunc(f.trouble, func(t trouble) bool { return t.told != "" }))
}

// load is chain.Load for files that may hang; its errors name them.
func (f *Files) load(ctx context.Context, p Pair, now time.Time) (*chain.Chain, error) {
	c, err := hang.Await(ctx, &f.hangs, p.Cert, func() (*chain.Chain, error) { return chain.Load(p.Cert, p.Key, now) })
	if err != nil {
		return nil, fmt.Errorf("load TLS certificate %q with key %q: %w", p.Cert, p.Key, err)
	}
	return c, nil
}

// report writes one line per change of state. What is wrong is told when two readings in a row have found it: a tool may write
// certificate and key one after the other.
func (f *Files) report(log *zap.Logger, i int, refused error) {
	t, now := &f.trouble[i], ""
	if refused != nil {
		now = refused.Error()
	}
	file := zap.String("certificate", f.pairs[i].Cert)
	switch {
	case now == "" && t.told != "":
		log.Info("TLS certificate files are in order again", file)
		t.told = ""
	case now != t.told && now == t.seen:
		log.Warn("TLS certificate not taken, the previous one stays in use", file, zap.Error(refused))
		t.told = now
	}
	t.seen = now
}

// warnOpenKeys only warns: Kubernetes mounts Secrets readable for the group.
func (f *Files) warnOpenKeys(ctx context.Context, log *zap.Logger) {
	for _, p := range f.pairs {
		info, err := hang.Await(ctx, &f.hangs, p.Key, func() (os.FileInfo, error) { return os.Stat(p.Key) })
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("TLS private key is open to other users of this machine", zap.String("key", p.Key), zap.Stringer("mode", info.Mode().Perm()))
		}
	}
}
