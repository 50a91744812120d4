// Package hang calls file systems that may not answer: a network mount whose server is gone, a pipe to which nobody writes.
package hang

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Patience is how long the file system may take for one call before it counts as hanging. A call that hangs cannot be
	// interrupted, whatever the context says: the kernel waits for a server that is gone.
	Patience = 2 * time.Second
	// Most bounds how many calls of one Guard are under way at once, those that were given up included: each keeps a thread of the
	// operating system.
	Most = 32
)

// Guard keeps a file system that does not answer from taking its callers with it. While a call hangs no other is made, so that a poll
// every few seconds does not pile up threads. The zero value is ready for use; it is safe for concurrent use.
type Guard struct {
	Patience time.Duration // 0: the constant of that name

	hanging atomic.Pointer[Error] // of a call that has not come back
	once    sync.Once
	running chan struct{} // one per call under way
}

// Error means that the file system does not answer. Its text stays the same for as long as that lasts.
type Error struct {
	path  string
	since time.Time
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s hangs: the file system has not answered since %s; look at the disk, mount or pipe behind it", e.path, e.since.UTC().Format(time.RFC3339))
}

// Await runs a call about path and returns what it returns, unless ctx ends first or it takes longer than the Guard's patience:
// then an [*Error]. The call then goes on by itself, and counts as hanging once that patience has passed, whichever of the two it was.
func Await[T any](ctx context.Context, g *Guard, path string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if e := g.hanging.Load(); e != nil {
		return none, e
	}
	g.once.Do(func() { g.running = make(chan struct{}, Most) })
	wait := time.NewTimer(cmp.Or(g.Patience, Patience))
	defer wait.Stop()
	began := time.Now()
	select {
	case g.running <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-wait.C:
		return none, &Error{path, began}
	}
	e, late := &Error{path, time.Now()}, make(chan struct{})
	timer := time.AfterFunc(cmp.Or(g.Patience, Patience), func() { g.hanging.Store(e); close(late) })
	done := make(chan result, 1)
	go func() {
		value, err := call()
		if !timer.Stop() {
			<-late
			g.hanging.CompareAndSwap(e, nil)
		}
		<-g.running
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-late:
		return none, e
	}
}

// Do is [Await] for a call without a value.
func Do(ctx context.Context, g *Guard, path string, call func() error) error {
	_, err := Await(ctx, g, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
