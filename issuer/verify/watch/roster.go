package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
)

const (
	// readTime bounds one reading of the store.
	readTime = 20 * time.Second
	// parallel is how many key sets are read at once.
	parallel = 8
)

// roster knows the issuers of a store, by the last good version of each key set. What vanishes from the store, or cannot be
// read, stays as it was: only a tombstone ends an issuer.
type roster struct {
	from   keystore.Reader
	admits func(keystore.KeySet) bool // nil for every one

	mu   sync.Mutex // guards sets: key sets are read side by side
	sets map[keystore.Name]listed
}

// listed is a key set of a roster.
type listed struct {
	revision keystore.Revision
	targets  []verify.Target // none if it was withdrawn, or never read
	copies   keystore.KeySet // the key set, if its policy names copies and it was not withdrawn; zero else
	unmarked keystore.KeySet // the version that was read last, until it is marked; zero from then on
	unread   bool            // what is stored now could not be read or is not admitted, or nothing is stored
	Stored
}

func newRoster(c Config) *roster {
	return &roster{from: c.Store, admits: c.Admits, sets: map[keystore.Name]listed{}}
}

// refresh reads what has changed. An error means that the store could not be read; what was read counts all the same.
func (r *roster) refresh(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	list, err := r.from.List(listing)
	if err != nil {
		return fmt.Errorf("list the key sets: %w", err)
	}
	for n, was := range r.sets {
		if _, is := list[n]; !is {
			was.unread, was.revision = true, ""
			r.sets[n] = was
		}
	}
	g, loading := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for n, revision := range list {
		if was, known := r.known(n); !known || was.unread || was.revision != revision {
			g.Go(func() error { return r.load(loading, n) })
		}
	}
	return g.Wait()
}

func (r *roster) known(n keystore.Name) (listed, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, known := r.sets[n]
	return l, known
}

// load reads one key set. An error is about the store as a whole.
func (r *roster) load(ctx context.Context, n keystore.Name) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s, revision, err := r.from.Load(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.sets[n]
	switch {
	case err == nil && (r.admits == nil || r.admits(s)):
		l := listed{revision: revision, targets: targets(s, was.targets), unmarked: s, Stored: Stored{n, s.Generation(), s.Withdrawn()}}
		if !s.Withdrawn() && len(s.Policy().Uploads()) > 0 {
			l.copies = s
		}
		r.sets[n] = l
		return nil
	case err == nil, keystore.OfDocument(err), errors.Is(err, keystore.ErrNotFound):
		was.unread, was.revision = true, ""
		r.sets[n] = was
		return nil
	}
	return fmt.Errorf("load key set %q: %w", n, err)
}

// targets returns how to look at the issuers of a key set. An issuer URL that an earlier version had stays: no change of a
// key set drops one, unless nobody is to read the documents any more.
func targets(s keystore.KeySet, before []verify.Target) []verify.Target {
	if s.Withdrawn() || s.Policy().Reach == keystore.ReachCopies {
		return nil
	}
	var all []verify.Target
	add := func(u keystore.IssuerURL) {
		for _, t := range all {
			if t.URL == u {
				return
			}
		}
		all = append(all, verify.TargetOf(s, u))
	}
	for _, u := range s.Issuers() {
		add(u)
	}
	for _, t := range before {
		add(t.URL)
	}
	return all
}

// targets returns every issuer to look at, and the key sets of which the stored version is not known, in order.
func (r *roster) targets() (all map[Issuer]verify.Target, unread []keystore.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all = map[Issuer]verify.Target{}
	for n, l := range r.sets {
		if l.unread {
			unread = append(unread, n)
		}
		for _, t := range l.targets {
			all[Issuer{n, t.URL.String()}] = t
		}
	}
	slices.Sort(unread)
	return all, unread
}

// copied returns the key sets of which relying parties hold copies, in order.
func (r *roster) copied() (all []keystore.KeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(r.sets)) {
		if s := r.sets[n].copies; s.Name() != "" {
			all = append(all, s)
		}
	}
	return all
}

// unmarked returns the versions that were read and not marked yet, in order of their names.
func (r *roster) unmarked() (all []keystore.KeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(r.sets)) {
		if s := r.sets[n].unmarked; s.Name() != "" {
			all = append(all, s)
		}
	}
	return all
}

// marked notes that a version was marked.
func (r *roster) marked(s keystore.KeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.sets[s.Name()]; l.unmarked.Digest() == s.Digest() {
		l.unmarked = keystore.KeySet{}
		r.sets[s.Name()] = l
	}
}

// stored returns the versions that are stored, of the key sets that could be read.
func (r *roster) stored() map[keystore.Name]Stored {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[keystore.Name]Stored{}
	for n, l := range r.sets {
		if !l.unread {
			all[n] = l.Stored
		}
	}
	return all
}
