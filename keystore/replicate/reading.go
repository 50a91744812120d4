package replicate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// parallel is how many key sets are read or written at once.
const parallel = 8

// loadTimeout bounds the reading of one key set from a store that may be at the other end of a network.
const loadTimeout = 20 * time.Second

const (
	// patience is how long a batch waits while none of its readings ends. The others go on by themselves. It is longer
	// than a directory takes to report that a file hangs.
	patience = 3 * time.Second
	// replaceAfter is how long a reading may take before another goroutine goes on with the rest of the batch.
	replaceAfter = time.Second
	// maxReplaced bounds how many goroutines were replaced and still read: each may keep a document in memory.
	maxReplaced = 64
)

// document is one key set as a backend returned it.
type document struct {
	name     keystore.Name
	revision keystore.Revision   // empty if there is none
	document keystore.Document   // byte for byte
	version  *lastgood.Summary   // nil if there is none
	rejected *lastgood.Rejection // why it must not be copied, whatever the destination holds
	err      error               // of reading it
}

// admission refuses key sets by the configuration of a reader; nil admits every one.
type admission func(keystore.KeySet) *lastgood.Rejection

// loadAll loads documents, several at a time. The error is that of ctx.
func loadAll(ctx context.Context, from keystore.Backend, names []keystore.Name, admit admission) ([]document, error) {
	all := make([]document, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	var breaker breaker
	for _, i := range rand.Perm(len(names)) { //nolint:gosec // so that after a failure not the same ones are first again
		all[i] = document{name: names[i], err: errStoreDown, rejected: lastgood.RejectError(errStoreDown)}
		g.Go(func() error {
			if !breaker.open() {
				all[i] = load(ctx, from, names[i], admit)
				breaker.count(all[i].rejected)
			}
			return ctx.Err() // else an interruption would look like unreadable key sets
		})
	}
	return all, g.Wait()
}

func load(ctx context.Context, from keystore.Backend, n keystore.Name, admit admission) document {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	var s keystore.KeySet
	var doc keystore.Document
	data, rev, err := from.Get(ctx, n)
	if err == nil {
		s, doc, err = keystore.ParseDocument(n, data)
	}
	if err != nil {
		return document{name: n, revision: rev, rejected: lastgood.RejectError(err), err: err}
	}
	version := lastgood.SummaryOf(s)
	d := document{name: n, revision: rev, document: doc, version: &version}
	if admit != nil {
		d.rejected = admit(s)
	}
	return d
}

// readings reads the key sets of one store so that one whose reading takes long holds up no other. At most one reading of
// each is under way: one that hangs is not read again at every pass, and an older version never comes after a newer one.
type readings struct {
	from  keystore.Backend
	admit admission
	late  func(context.Context, document) // gets what is read after its batch has ended

	mu       sync.Mutex // guards the rest, and the batches
	under    map[keystore.Name]*reading
	slow     map[keystore.Name]bool // the latest reading took longer than patience
	replaced int                    // readings whose goroutine was replaced
}

// reading is a key set that is being read, or that a goroutine will read.
type reading struct {
	batch    *readingBatch
	ended    bool
	replaced bool
	again    bool // somebody wanted another one meanwhile
}

// readingBatch is a batch of readings. Nobody waits for one that has ended.
type readingBatch struct {
	due     map[keystore.Name]bool
	todo    chan keystore.Name // holds them all, and is closed
	results chan document      // holds them all, so that no reading waits
	ended   bool
	breaker breaker
}

var errSlow = fmt.Errorf("its reading has taken longer than %v and goes on", patience)

// load reads key sets, sorted by name. It waits until each is read, or until no reading has ended for patience: the rest
// is late. It does not wait for those that took long the last time or are being read already, and the result lacks them.
// The error is that of ctx.
func (r *readings) load(ctx context.Context, names []keystore.Name) ([]document, error) {
	var some, slow []keystore.Name
	r.mu.Lock()
	for _, n := range names {
		if r.slow[n] {
			slow = append(slow, n)
		} else {
			some = append(some, n)
		}
	}
	r.mu.Unlock()
	r.begin(ctx, &readingBatch{ended: true}, slow)
	b := &readingBatch{}
	r.begin(ctx, b, some)
	read, err := b.wait(ctx)
	r.end(b)
	if err != nil {
		return nil, err
	}
	read = append(read, b.rest()...)
	for _, d := range read {
		delete(b.due, d.name)
	}
	for n := range b.due {
		read = append(read, document{name: n, err: errSlow, rejected: lastgood.RejectError(errSlow)})
	}
	slices.SortFunc(read, func(a, b document) int { return strings.Compare(string(a.name), string(b.name)) })
	return read, ctx.Err() // else an interruption would look like unreadable key sets
}

// wait returns what was read when everything was, or when no reading has ended for patience. The error is that of ctx.
func (b *readingBatch) wait(ctx context.Context) (read []document, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for len(read) < cap(b.results) {
		select {
		case d := <-b.results:
			read = append(read, d)
			timer.Reset(patience)
		case <-timer.C:
			return read, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return read, nil
}

// rest returns what was read before the batch ended and not received.
func (b *readingBatch) rest() (read []document) {
	for len(b.results) > 0 {
		read = append(read, <-b.results)
	}
	return read
}

// begin begins to read those key sets whose reading is not under way, as a batch. Of a batch that nobody waits for, ended must be
// true before: a quick reading would hand its document to nobody.
func (r *readings) begin(ctx context.Context, b *readingBatch, names []keystore.Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.due = map[keystore.Name]bool{}
	var due []keystore.Name
	for _, n := range names {
		if under := r.under[n]; under != nil {
			under.again = true
			continue
		}
		r.under[n] = &reading{batch: b}
		b.due[n] = true
		due = append(due, n)
	}
	b.todo, b.results = make(chan keystore.Name, len(due)), make(chan document, len(due))
	for _, i := range rand.Perm(len(due)) { //nolint:gosec // so that after a failure not the same ones are first again
		b.todo <- due[i]
	}
	close(b.todo)
	for range min(parallel, len(due)) {
		go r.work(ctx, b)
	}
}

// end ends a batch: what is read from now on is late.
func (r *readings) end(b *readingBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.ended = true
}

// work reads key sets of a batch until none is left to begin, or until another goroutine has taken over.
func (r *readings) work(ctx context.Context, b *readingBatch) {
	for n := range b.todo {
		if r.read(ctx, n, b) {
			return
		}
	}
}

// read reads one key set, and reports whether another goroutine goes on with the batch.
func (r *readings) read(ctx context.Context, n keystore.Name, b *readingBatch) (replaced bool) {
	r.mu.Lock()
	one := r.under[n]
	r.mu.Unlock()
	watch := time.AfterFunc(replaceAfter, func() {
		if r.replace(one) {
			r.work(ctx, b)
		}
	})
	began := time.Now()
	d := document{name: n, err: errStoreDown, rejected: lastgood.RejectError(errStoreDown)}
	if !b.breaker.open() && ctx.Err() == nil {
		d = load(ctx, r.from, n, r.admit)
		b.breaker.count(d.rejected)
	}
	watch.Stop()
	r.note(ctx, one, d, time.Since(began) >= patience)
	return one.replaced
}

func (r *readings) replace(one *reading) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.ended || r.replaced >= maxReplaced {
		return false
	}
	one.replaced = true
	r.replaced++
	return true
}

// note hands over what was read. A late one stays under way until it was taken: else a newer version could be first.
func (r *readings) note(ctx context.Context, one *reading, d document, slow bool) {
	r.mu.Lock()
	one.ended = true
	if one.replaced {
		r.replaced--
	}
	if delete(r.slow, d.name); slow {
		r.slow[d.name] = true
	}
	late := one.batch.ended
	if !late {
		one.batch.results <- d
		delete(r.under, d.name)
	}
	r.mu.Unlock()
	if !late {
		return
	}
	if ctx.Err() == nil {
		r.late(ctx, d)
	}
	r.mu.Lock()
	delete(r.under, d.name)
	again := one.again
	r.mu.Unlock()
	if again && ctx.Err() == nil {
		r.begin(ctx, &readingBatch{ended: true}, []keystore.Name{d.name})
	}
}

// breaker is a circuit breaker: if nothing of a store can be read, it spares the timeouts of ten thousand key sets.
type breaker struct{ failed, passed atomic.Int64 }

var errStoreDown = errors.New("it was not tried, since no key set before it could be read")

func (b *breaker) open() bool { return b.passed.Load() == 0 && b.failed.Load() >= 4*parallel }

func (b *breaker) count(r *lastgood.Rejection) {
	if r.Is(lastgood.ReasonUnreadable) {
		b.failed.Add(1)
		return
	}
	b.passed.Add(1)
}
