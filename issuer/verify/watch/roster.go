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
	set      keystore.KeySet // the version that was read last: until it was compared, and always if its policy names uploads
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
		r.sets[n] = listed{revision: revision, targets: targets(s, was.targets), set: s, Stored: Stored{n, s.Generation(), s.Withdrawn()}}
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

// listing is what a roster knows.
type listing struct {
	targets map[Issuer]verify.Target // every issuer to look at
	stored  map[keystore.Name]Stored // the versions of the key sets that could be read
	unread  []keystore.Name          // the key sets of which the stored version is not known, in order
}

func (r *roster) listing() listing {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := listing{targets: map[Issuer]verify.Target{}, stored: map[keystore.Name]Stored{}}
	for n, l := range r.sets {
		if l.unread {
			all.unread = append(all.unread, n)
		} else {
			all.stored[n] = l.Stored
		}
		for _, t := range l.targets {
			all.targets[Issuer{n, t.URL.String()}] = t
		}
	}
	slices.Sort(all.unread)
	return all
}

// toCompare returns the key sets that are to be compared with what is recorded, in order.
func (r *roster) toCompare() (all []keystore.KeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(r.sets)) {
		if s := r.sets[n].set; s.Name() != "" {
			all = append(all, s)
		}
	}
	return all
}

// compared notes that a version was compared.
func (r *roster) compared(s keystore.KeySet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.sets[s.Name()]; l.set.Digest() == s.Digest() && (s.Withdrawn() || len(s.Policy().Uploads()) == 0) {
		l.set = keystore.KeySet{}
		r.sets[s.Name()] = l
	}
}
