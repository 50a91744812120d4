package filestore

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// patience is how long the file system may take for one file before that file counts as hanging. A call that
	// hangs cannot be interrupted, whatever the context says: the kernel waits for a server that is gone.
	patience = 2 * time.Second
	// maxHanging bounds how many calls may hang at once. Each of them keeps a thread of the operating system. Once so many
	// hang, no file is tried any more, also none that has never hung: List and Get fail until one call comes back.
	maxHanging = 32
)

// hangs keeps a file system that does not answer from taking its callers with it. A file that hangs is not asked for
// again until the call has come back, so that a poll every few seconds does not pile up threads.
type hangs struct {
	mu    sync.Mutex
	since map[string]time.Time // by path
}

// hangError means that the file system does not answer for a file. Its text stays the same for as long as that lasts.
type hangError struct {
	path  string
	since time.Time
}

func (e *hangError) Error() string {
	return fmt.Sprintf("%s hangs: the file system has not answered since %s; look at the disk or mount behind it", e.path, e.since.UTC().Format(time.RFC3339))
}

// refuse returns an error when path hangs, or when so much hangs that nothing more may be tried.
func (h *hangs) refuse(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since, ok := h.since[path]; ok {
		return &hangError{path, since}
	}
	if len(h.since) >= maxHanging {
		return fmt.Errorf("%s was not tried: %d other files hang already; look at the disk or mount behind them", path, len(h.since))
	}
	return nil
}

func (h *hangs) note(path string, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since == nil {
		h.since = map[string]time.Time{}
	}
	h.since[path] = since
}

func (h *hangs) forget(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, path)
}

// await runs a call about path and returns what it returns, unless ctx ends first or it takes longer than patience. The
// call then goes on by itself.
func await[T any](ctx context.Context, h *hangs, path string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := h.refuse(path); err != nil {
		return none, err
	}
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timer.C:
		h.note(path, began)
		go func() {
			<-done
			h.forget(path)
		}()
		return none, &hangError{path, began}
	}
}
