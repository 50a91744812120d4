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
)

const (
	// pollEvery finds changes without an event: network file systems, a directory
	// that was replaced, a certificate that becomes valid or expires.
	pollEvery = time.Minute
	// quietFor lets a tool that writes certificate and key one after the other
	// finish before the pair is loaded.
	quietFor = 200 * time.Millisecond
	// readTimeout bounds the reading of a pair: a network file system may hang.
	readTimeout = 10 * time.Second
)

// Watch replaces certificates when their files change, until ctx is done; it
// returns nil then. A pair that LoadFiles would refuse, or with which one of the
// hosts would lose its certificate, leaves the previous one in use: one Warn line
// per change of state, and keypost_tls_reload_failing is 1. The other pairs are
// replaced all the same.
func (f *Files) Watch(ctx context.Context, log *zap.Logger) error {
	f.warnOpenKeys(log)
	files, err := newFileWatch(f.pairs)
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
			_ = files.add() // a directory that was removed and made again needs a new watch
		case <-settled.C:
		}
		f.reload(time.Now(), log)
	}
}

// fileWatch reports changes in the directories of the pairs. It watches directories
// and not files: a Kubernetes mount swaps the symlink "..data" beside them, and tools
// that rename a new file into place leave a watch on the old one behind.
type fileWatch struct {
	watcher *fsnotify.Watcher // nil when the system grants none
	dirs    []string
	changed <-chan fsnotify.Event
	lost    <-chan error // such as events that did not fit the queue
}

// newFileWatch always returns a watch to select on. With an error it is incomplete.
func newFileWatch(pairs []Pair) (*fileWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &fileWatch{}, err
	}
	w := &fileWatch{watcher: watcher, changed: watcher.Events, lost: watcher.Errors}
	for _, p := range pairs {
		w.dirs = append(w.dirs, filepath.Dir(p.Cert), filepath.Dir(p.Key))
	}
	return w, w.add()
}

func (w *fileWatch) add() error {
	if w.watcher == nil {
		return nil
	}
	var all error
	for _, d := range w.dirs {
		all = errors.Join(all, w.watcher.Add(d))
	}
	return all
}

func (w *fileWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // nothing to flush
	}
}

// reload loads the files as they are now. Only Watch calls it.
func (f *Files) reload(now time.Time, log *zap.Logger) {
	old := f.inUse.Load()
	certs, refused := slices.Clone(old.certs), make([]error, len(f.pairs))
	for i, p := range f.pairs {
		c, err := f.loadWithin(i, p, now)
		if err != nil {
			refused[i] = err
		} else if !sameChain(c, old.certs[i]) {
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

// loaded is the result of reading a pair.
type loaded struct {
	cert *certificate
	err  error
}

// loadWithin is loadPair with a timeout. A reading that hangs is not begun again
// before it has ended.
func (f *Files) loadWithin(i int, p Pair, now time.Time) (*certificate, error) {
	if f.reading[i] == nil {
		done := make(chan loaded, 1)
		f.reading[i] = done
		go func() {
			c, err := loadPair(p, now)
			done <- loaded{c, err}
		}()
	}
	select {
	case r := <-f.reading[i]:
		f.reading[i] = nil
		return r.cert, r.err
	case <-time.After(readTimeout):
		return nil, fmt.Errorf("load TLS certificate %q: its file system does not answer for more than %v; mend or unmount it", p.Cert, readTimeout)
	}
}

// keepCovered puts previous certificates back until every host has one. Names may
// move from one pair to another in one reload; only a change that takes a host's last
// certificate away is refused. It terminates: each round puts back at least the
// certificate that covered the host before, and the previous set covers all hosts.
func (f *Files) keepCovered(certs []*certificate, refused []error) *certSet {
	old := f.inUse.Load()
	for {
		set := newCertSet(certs)
		host := set.uncovered(f.hosts)
		if host == "" {
			return set
		}
		certs = slices.Clone(certs)
		for i, c := range old.certs {
			if certs[i] != c && newCertSet([]*certificate{c}).covers(host) {
				certs[i] = c
				refused[i] = fmt.Errorf("load TLS certificate %q: it is no longer for %q, issue it for that name too", f.pairs[i].Cert, host)
			}
		}
	}
}

func sameChain(a, b *certificate) bool {
	return slices.EqualFunc(a.tls.Certificate, b.tls.Certificate, slices.Equal[[]byte])
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
		log.Info("TLS certificate replaced", file, zap.Time("notAfter", f.inUse.Load().certs[i].notAfter))
	case trouble != "" && trouble != f.trouble[i]:
		log.Warn("TLS certificate not taken, the previous one stays in use", file, zap.Error(refused))
	case trouble == "" && f.trouble[i] != "":
		log.Info("TLS certificate files are in order again", file)
	}
	f.trouble[i] = trouble
}

// warnOpenKeys only warns: Kubernetes mounts Secrets readable for the group.
func (f *Files) warnOpenKeys(log *zap.Logger) {
	for _, p := range f.pairs {
		info, err := os.Stat(p.Key)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("TLS private key is open to other users of this machine", zap.String("key", p.Key), zap.Stringer("mode", info.Mode().Perm()))
		}
	}
}
