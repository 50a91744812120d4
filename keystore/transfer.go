package keystore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Why a key set is not copied, beside what [Summary.Follows] and [Parse] find.
const (
	ReasonMissing     Reason = "missing"      // the source does not hold it; what was copied before stays
	ReasonUnreadable  Reason = "unreadable"   // the source could not give it
	ReasonURLConflict Reason = "url_conflict" // another key set has one of its issuer URLs
)

// parallel is how many key sets are read or written at once.
const parallel = 8

// loaded is one key set as a store gave it: a key set or an error, with a revision where there is one.
type loaded struct {
	name     Name
	set      KeySet
	revision Revision
	err      error
}

// loadPatience bounds one reading of a store that may be at the other end of a network.
const loadPatience = 20 * time.Second

// loadAll loads key sets, several at a time. The error is that of ctx.
func loadAll(ctx context.Context, st Reader, names []Name) ([]loaded, error) {
	all := make([]loaded, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var odds odds
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that it is not always the same ones that come first
		n := names[i]
		g.Go(func() error {
			if all[i] = (loaded{name: n, err: errHopeless}); !odds.hopeless() {
				all[i] = load(ctx, st, n)
				odds.note(all[i])
			}
			return ctx.Err() // else an interruption would look like a thousand unreadable key sets
		})
	}
	return all, g.Wait()
}

func load(ctx context.Context, st Reader, n Name) loaded {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	s, rev, err := st.Load(ctx, n)
	return loaded{n, s, rev, err}
}

// odds sees when it is the store and not a key set that cannot be read, so that ten thousand timeouts are not waited for.
type odds struct{ failed, went atomic.Int64 }

var errHopeless = errors.New("it was not tried, since none before it could be read")

func (o *odds) hopeless() bool { return o.went.Load() == 0 && o.failed.Load() >= 4*parallel }

func (o *odds) note(l loaded) {
	if why := l.rejection(); why != nil && why.Reason == ReasonUnreadable {
		o.failed.Add(1)
		return
	}
	o.went.Add(1)
}

// rejection says why nothing could be read; nil when something was, or there is nothing.
func (l loaded) rejection() *Rejection {
	broken, isBroken := errors.AsType[*BrokenError](l.err)
	switch {
	case l.err == nil || errors.Is(l.err, ErrNotFound):
		return nil
	case isBroken:
		return Reject(broken.Reason, "%v", broken.Err)
	}
	return Reject(ReasonUnreadable, "%v", l.err)
}

// ledger knows what a store holds that is copied to, and the last good versions: a document that was lost or spoilt
// there is no reason to forget what it said. One goroutine uses it; owner and goodVersions may be called by any.
type ledger struct {
	repairs bool // a broken document there may be replaced, since it is only a copy

	mu      sync.Mutex // guards the rest
	entries map[Name]holding
	owners  map[string]Name   // of the issuer URLs in last good versions that are not tombstones
	ended   map[string][]Name // the tombstones with an issuer URL
}

// holding is what is known of one key set in the store.
type holding struct {
	revision Revision   // that a write has to name; empty when the store holds none
	there    *Summary   // what the store holds; nil when it holds none, or a broken one
	good     *Summary   // the last good version; nil when there was none
	broken   *Rejection // why what the store holds is no key set
}

func newLedger() *ledger {
	return &ledger{entries: map[Name]holding{}, owners: map[string]Name{}, ended: map[string][]Name{}}
}

func (l *ledger) entry(n Name) holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[n]
}

func (l *ledger) good(n Name) *Summary { return l.entry(n).good }

// goodVersions returns every key set with its last good version.
func (l *ledger) goodVersions() map[Name]*Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[Name]*Summary, len(l.entries))
	for n, e := range l.entries {
		if e.good != nil {
			all[n] = e.good
		}
	}
	return all
}

// owner returns the key set to which an issuer URL belongs.
func (l *ledger) owner(issuer string) (n Name, owned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, owned = l.owners[issuer]
	return n, owned
}

// holds tells that the store has the version with that digest, and that it is the last good one.
func (l *ledger) holds(n Name, digest [sha256.Size]byte) bool {
	e := l.entry(n)
	return e.there != nil && e.good != nil && e.there.digest == digest && e.good.digest == digest
}

// read takes in what has changed in the store since the last time.
func (l *ledger) read(ctx context.Context, st Reader) error {
	listed, err := st.List(ctx)
	if err != nil {
		return err
	}
	var changed []Name
	for n, rev := range listed {
		if l.entry(n).revision != rev {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	all, err := loadAll(ctx, st, changed)
	if err != nil {
		return err
	}
	for _, n := range names(l.goodVersions()) {
		if _, ok := listed[n]; !ok {
			all = append(all, loaded{name: n, err: ErrNotFound})
		}
	}
	for _, one := range all {
		if err := l.note(one); err != nil {
			return err
		}
	}
	return nil
}

// note takes in one document of the store. One that the last good version does not lead to is there and not good.
func (l *ledger) note(one loaded) error {
	e := holding{revision: one.revision, good: l.good(one.name), broken: one.rejection()}
	switch {
	case e.broken != nil && e.broken.Reason == ReasonUnreadable:
		return fmt.Errorf("read key set %q: %w", one.name, one.err)
	case one.err == nil:
		o := one.set.Summary()
		e.there = &o
		if o.Follows(e.good) == nil {
			e.good = &o
		}
	}
	l.put(one.name, e)
	return nil
}

func (l *ledger) put(n Name, e holding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.entries[n].urls() {
		if l.owners[u] == n {
			delete(l.owners, u)
		}
	}
	for _, u := range l.entries[n].endedURLs() {
		l.ended[u] = slices.DeleteFunc(l.ended[u], func(m Name) bool { return m == n })
	}
	for _, u := range e.endedURLs() {
		l.ended[u] = append(l.ended[u], n)
	}
	for _, u := range e.urls() {
		if _, taken := l.owners[u]; !taken {
			l.owners[u] = n
		}
	}
	l.entries[n] = e
}

// urls are the issuer URLs of the last good version, none if that is a tombstone.
func (e holding) urls() []string {
	if e.good == nil || e.good.withdrawn {
		return nil
	}
	return slices.Collect(e.good.Issuers())
}

// endedURLs are the issuer URLs of the last good version if that is a tombstone.
func (e holding) endedURLs() []string {
	if e.good == nil || !e.good.withdrawn {
		return nil
	}
	return slices.Collect(e.good.Issuers())
}

// returning refuses a version with a key that left with another key set of the same issuer URL.
func (l *ledger) returning(n Name, o *Summary) *Rejection {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range o.Issuers() {
		for _, m := range l.ended[u] {
			if id, returns := o.Returning(l.entries[n].good, l.entries[m].good); m != n && returns {
				return Reject(ReasonGoneReturned, "key %s left the issuer URL %s for good with the withdrawn key set %q", id, u, m)
			}
		}
	}
	return nil
}

// judge says why a version may not be written; claims are the issuer URLs of all that come with it.
func (l *ledger) judge(n Name, o *Summary, claims map[string][]Name) *Rejection {
	e := l.entry(n)
	if e.broken != nil && (!l.repairs || e.broken.Reason == ReasonNewerVersion) {
		return Reject(e.broken.Reason, "what it would replace is not understood: %s", e.broken.Message)
	}
	if r := o.Follows(e.good); r != nil {
		return r
	}
	if o.withdrawn {
		return nil
	}
	for u := range o.Issuers() {
		owner, owned := l.owner(u)
		switch {
		case owned && owner != n:
			return Reject(ReasonURLConflict, "its issuer URL %s belongs to key set %q", u, owner)
		case !owned && len(claims[u]) > 1: // choosing one by chance would let a second writer take an issuer over
			return Reject(ReasonURLConflict, "its issuer URL %s is also that of key set %q", u, otherThan(n, claims[u]))
		}
	}
	return l.returning(n, o)
}

func otherThan(n Name, names []Name) Name {
	return names[max(0, slices.IndexFunc(names, func(m Name) bool { return m != n }))]
}

// arrival is a key set that is to be written, and what became of it.
type arrival struct {
	name     Name
	set      KeySet
	summary  Summary
	was      int64 // generation of the last good version; 0 when there was none
	rejected *Rejection
	same     bool // it is there already
	err      error
}

// transfer writes what may be written, tombstones first: an issuer URL may pass from a withdrawn key set to another.
func (l *ledger) transfer(ctx context.Context, st *Store, all []*arrival) error {
	claims := map[string][]Name{}
	for _, a := range all {
		if a.rejected == nil && !a.summary.withdrawn {
			for u := range a.summary.Issuers() {
				claims[u] = append(claims[u], a.name)
			}
		}
	}
	for _, tombstones := range []bool{true, false} {
		var due []*arrival
		for _, a := range all {
			if a.rejected == nil && a.summary.withdrawn == tombstones && l.admits(a, claims) {
				due = append(due, a)
			}
		}
		if err := l.writeAll(ctx, st, due); err != nil {
			return err
		}
	}
	return nil
}

// admits fills in what stands against an arrival and tells whether it is to be written.
func (l *ledger) admits(a *arrival, claims map[string][]Name) bool {
	e := l.entry(a.name)
	if e.good != nil {
		a.was = e.good.generation
	}
	a.rejected = l.judge(a.name, &a.summary, claims)
	a.same = a.rejected == nil && e.there != nil && e.there.digest == a.summary.digest
	return a.rejected == nil && !a.same
}

// writeAll writes into st, or if that is nil only notes what would be there.
func (l *ledger) writeAll(ctx context.Context, st *Store, due []*arrival) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, a := range due {
		g.Go(func() error {
			rev := Revision("")
			if st != nil {
				rev, a.err = l.write(ctx, st, a)
			}
			if a.err == nil {
				l.put(a.name, holding{revision: rev, there: &a.summary, good: &a.summary})
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

func (l *ledger) write(ctx context.Context, st *Store, a *arrival) (Revision, error) {
	rev, err := st.Replace(ctx, l.entry(a.name).revision, a.set)
	if err != nil {
		return "", fmt.Errorf("write key set %q: %w", a.name, err)
	}
	return rev, nil
}

// names returns the names in m in their order.
func names[V any](m map[Name]V) []Name { return slices.Sorted(maps.Keys(m)) }
