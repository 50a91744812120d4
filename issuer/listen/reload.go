package listen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/issuer/listen/internal/chain"
)

const (
	// pollEvery finds changes without an event: network file systems, a directory
	// that was replaced, a certificate that becomes valid or expires.
	pollEvery = time.Minute
	// quietFor lets a tool that writes certificate and key one after the other
	// finish before the pair is loaded.
	quietFor = 200 * time.Millisecond
)

// Watch replaces certificates when their files change, until ctx is done; it
// returns nil then. A pair that LoadFiles would refuse, or with which one of the
// hosts would lose its certificate, leaves the previous one in use: one Warn line
// per change of state, and keypost_tls_reload_failing is 1. The other pairs are
// replaced all the same.
func (f *Files) Watch(ctx context.Context, log *zap.Logger) error {
	f.warnOpenKeys(ctx, log)
	files, err := newFileWatch(ctx, f.pairs)
	if err != nil {
		log.Warn("certificate files cannot be watched, only polled", zap.Duration("every", pollEvery), zap.Error(err))
	}
	defer files.close()
	f.follow(ctx, files, log)
	return nil
}

// follow reloads the files once they have not changed for quietFor, and every pollEvery.
func (f *Files) follow(ctx context.Context, files *fileWatch, log *zap.Logger) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	settled := time.NewTimer(quietFor) // the files may have changed since they were loaded
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-files.changed:
			settled.Reset(quietFor) // an endless stream of changes is cut by the poll
			continue
		case <-files.lost:
			settled.Reset(quietFor)
			continue
		case <-poll.C:
			_ = files.add(ctx) // a directory that was removed and made again needs a new watch
		case <-settled.C:
		}
		f.reload(ctx, time.Now(), log)
	}
}

// fileWatch reports changes in the directories of the pairs. It watches directories
// and not files: a Kubernetes mount swaps the symlink "..data" beside them, and tools
// that rename a new file into place leave a watch on the old one behind.
type fileWatch struct {
	watcher *fsnotify.Watcher // nil when the system grants none
	dirs    []string
	hangs   hang.Guard
	changed <-chan fsnotify.Event
	lost    <-chan error // such as events that did not fit the queue
}

// newFileWatch always returns a watch to select on. With an error it is incomplete.
func newFileWatch(ctx context.Context, pairs []Pair) (*fileWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &fileWatch{}, err
	}
	w := &fileWatch{watcher: watcher, changed: watcher.Events, lost: watcher.Errors}
	for _, p := range pairs {
		w.dirs = append(w.dirs, filepath.Dir(p.Cert), filepath.Dir(p.Key))
	}
	return w, w.add(ctx)
}

func (w *fileWatch) add(ctx context.Context) error {
	if w.watcher == nil {
		return nil
	}
	var all error
	for _, d := range w.dirs {
		all = errors.Join(all, hang.Do(ctx, &w.hangs, d, func() error { return w.watcher.Add(d) }))
	}
	return all
}

func (w *fileWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing to flush
	}
}

// reload loads the files as they are now. Only Watch calls it.
func (f *Files) reload(ctx context.Context, now time.Time, log *zap.Logger) {
	old := f.inUse.Load()
	certs, refused := slices.Clone(old.certs), make([]error, len(f.pairs))
	for i, p := range f.pairs {
		c, err := f.load(ctx, p, now)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			refused[i] = err
		} else if !c.Same(old.certs[i]) {
			certs[i] = c
		}
	}
	set := f.keepCovered(certs, refused)
	f.inUse.Store(set)
	f.failing.Store(slices.ContainsFunc(refused, func(err error) bool { return err != nil }))
	for i, c := range set.certs {
		f.report(log, i, refused[i], c != old.certs[i])
	}
}

// load is chain.Load for files that may hang.
func (f *Files) load(ctx context.Context, p Pair, now time.Time) (*chain.Chain, error) {
	c, err := hang.Await(ctx, &f.hangs, p.Cert, func() (*chain.Chain, error) { return chain.Load(p.Cert, p.Key, now) })
	if hanging := (*hang.Error)(nil); errors.As(err, &hanging) {
		return nil, fmt.Errorf("load TLS certificate %q with key %q: %w", p.Cert, p.Key, err)
	}
	return c, err
}

// keepCovered puts previous certificates back until every host has one. Names may
// move from one pair to another in one reload; only a change that takes a host's last
// certificate away is refused. It terminates: each round puts back at least the
// certificate that covered the host before, and the previous set covers all hosts.
func (f *Files) keepCovered(certs []*chain.Chain, refused []error) *certSet {
	old := f.inUse.Load()
	for {
		set := newCertSet(certs)
		host := set.uncovered(f.hosts)
		if host == "" {
			return set
		}
		certs = slices.Clone(certs)
		for i, c := range old.certs {
			if certs[i] != c && newCertSet([]*chain.Chain{c}).covers(host) {
				certs[i] = c
				refused[i] = fmt.Errorf("load TLS certificate %q: it is no longer for %q, issue it for that name too", f.pairs[i].Cert, host)
			}
		}
	}
}

// report writes one line per change of state.
func (f *Files) report(log *zap.Logger, i int, refused error, replaced bool) {
	trouble := ""
	if refused != nil {
		trouble = refused.Error()
	}
	file := zap.String("certificate", f.pairs[i].Cert)
	switch {
	case replaced:
		log.Info("TLS certificate replaced", file, zap.Time("not_after", f.inUse.Load().certs[i].NotAfter))
	case trouble != "" && trouble != f.trouble[i]:
		log.Warn("TLS certificate not taken, the previous one stays in use", file, zap.Error(refused))
	case trouble == "" && f.trouble[i] != "":
		log.Info("TLS certificate files are in order again", file)
	}
	f.trouble[i] = trouble
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
