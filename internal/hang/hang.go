// Package hang calls file systems that may not answer: a network mount whose server is gone, a pipe to which nobody writes.
package hang

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// Patience is how long the file system may take for one file before that file counts as hanging. A call that
	// hangs cannot be interrupted, whatever the context says: the kernel waits for a server that is gone.
	Patience = 2 * time.Second
	// Most bounds how many calls of one Guard are under way at once, those that hang and those that were given up with their
	// context among them: each keeps a thread of the operating system. Others wait for their turn. Once so many hang, no file is
	// tried any more, also none that has never hung, until one call comes back.
	Most = 32
)

// Guard keeps a file system that does not answer from taking its callers with it. A file that hangs is not asked for
// again until the call has come back, so that a poll every few seconds does not pile up threads. The zero value is ready
// for use; it is safe for concurrent use.
type Guard struct {
	Patience time.Duration // 0: the constant of that name

	mu      sync.Mutex
	running int               // calls under way, at most Most
	hanging map[string][]*run // those of them that have taken longer than patience, by path
	hang    int               // how many these are
	changed chan struct{}     // closed when a call ends or begins to count as hanging; nil while nobody waits for that
}

// run is one call under way.
type run struct {
	path  string
	began time.Time
	ended bool
}

// Error means that the file system does not answer for a file. Its text stays the same for as long as that lasts.
type Error struct {
	path  string
	since time.Time
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s hangs: the file system has not answered since %s; look at the disk, mount or pipe behind it", e.path, e.since.UTC().Format(time.RFC3339))
}

// begin waits for the turn of a call about path. It returns an error when path hangs, when so much hangs that nothing more may be
// tried, or when ctx ends.
func (g *Guard) begin(ctx context.Context, path string) (*run, error) {
	for {
		r, changed, err := g.try(path)
		if r != nil || err != nil {
			return r, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try begins a call, or returns what is closed when it may be tried again.
func (g *Guard) try(path string) (*run, <-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch same := g.hanging[path]; {
	case len(same) > 0:
		return nil, nil, &Error{path, same[0].began}
	case g.hang >= Most:
		return nil, nil, fmt.Errorf("%s was not tried: %d calls for other files hang already; look at the disk or mount behind them", path, g.hang)
	case g.running >= Most:
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		return nil, g.changed, nil
	}
	g.running++
	return &run{path: path, began: time.Now()}, nil, nil
}

// late notes that a call hangs, unless it has ended.
func (g *Guard) late(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.ended {
		return
	}
	if g.hanging == nil {
		g.hanging = map[string][]*run{}
	}
	g.hanging[r.path] = append(g.hanging[r.path], r)
	g.hang++
	g.wake()
}

func (g *Guard) end(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.ended = true
	g.running--
	all := g.hanging[r.path]
	if i := slices.Index(all, r); i >= 0 {
		g.hang--
		if all = slices.Delete(all, i, i+1); len(all) == 0 {
			delete(g.hanging, r.path)
		} else {
			g.hanging[r.path] = all
		}
	}
	g.wake()
}

// wake lets those who wait try again.
func (g *Guard) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Await runs a call about path and returns what it returns, unless ctx ends first or it takes longer than the Guard's patience:
// then an [*Error]. The call then goes on by itself, and counts as hanging once that patience has passed, whichever of the two it
// was. The time before its turn comes does not count.
func Await[T any](ctx context.Context, g *Guard, path string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	r, err := g.begin(ctx, path)
	if err != nil {
		return none, err
	}
	done, late := make(chan result, 1), make(chan struct{})
	timer := time.AfterFunc(cmp.Or(g.Patience, Patience), func() { g.late(r); close(late) })
	go func() {
		value, err := call()
		timer.Stop()
		g.end(r)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-late:
		return none, &Error{path, r.began}
	}
}

// Do is [Await] for a call without a value.
func Do(ctx context.Context, g *Guard, path string, call func() error) error {
	_, err := Await(ctx, g, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
