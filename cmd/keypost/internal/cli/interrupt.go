package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
)

// Interruption is the signal that ended a run, as the cause of its context.
type Interruption struct{ Signal os.Signal }

func (i Interruption) Error() string { return "interrupted" }

// Is lets a cause pass for the [context.Canceled] that it is the cause of.
func (i Interruption) Is(target error) bool { return target == context.Canceled }

// Code is what shells report for a program that the signal killed.
func (i Interruption) Code() int {
	if i.Signal == syscall.SIGTERM {
		return ExitTerminated
	}
	return ExitInterrupted
}

// stopped reports what an interrupted run leaves behind. It is what somebody who pressed Ctrl-C wants to know; the error
// of whatever was under way says "context canceled" and no more.
func (f *Factory) stopped(cmd *cobra.Command, i Interruption) error {
	stored, doubtful := f.writes.outcome()
	switch {
	case len(doubtful) > 0:
		return WithHint(fmt.Errorf("interrupted; whether key set %q was changed is unknown: %w", doubtful[0], i), "look at it with %s",
			Command{"issuer", "show", string(doubtful[0])})
	case len(stored) > 0 && goesOn(cmd):
		return WithHint(fmt.Errorf("interrupted; key set %q is stored: %w", stored[0], i), "run the same command again, it goes on from there")
	case len(stored) > 0:
		return fmt.Errorf("interrupted; key set %q is changed and stored: %w", stored[0], i)
	case goesOn(cmd):
		return WithHint(fmt.Errorf("interrupted; what is done so far stays: %w", i), "run the same command again, it goes on from there")
	}
	return fmt.Errorf("interrupted; nothing was changed: %w", i)
}

// goesOn reports whether a command makes several things, one after the other.
func goesOn(cmd *cobra.Command) bool {
	words := strings.Fields(cmd.CommandPath())
	return len(words) > 1 && slices.Contains([]string{"aws", "export", "store", "mirror"}, words[1])
}

// writes are the key sets that a run began to write.
type writes struct {
	mu    sync.Mutex
	begun []keystore.Name
	ended map[keystore.Name]bool // true: it is stored
}

func (w *writes) begin(n keystore.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = append(w.begun, n)
}

func (w *writes) end(n keystore.Name, stored bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = map[keystore.Name]bool{}
	}
	w.ended[n] = stored
}

// outcome returns the key sets that are stored, and those of which that is unknown.
func (w *writes) outcome() (stored, doubtful []keystore.Name) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.begun {
		switch is, known := w.ended[n]; {
		case !known:
			doubtful = append(doubtful, n)
		case is:
			stored = append(stored, n)
		}
	}
	return stored, doubtful
}

// noted returns st with its writes noted.
func (f *Factory) noted(st *keystore.Store) *keystore.Store {
	return keystore.NewStore(noting{st.Backend(), &f.writes})
}

// noting is a backend that notes what is written.
type noting struct {
	keystore.Backend
	writes *writes
}

// Put implements keystore.Backend.
func (b noting) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	b.writes.begin(n)
	rev, err := b.Backend.Put(ctx, n, old, doc)
	switch {
	case err == nil:
		b.writes.end(n, true)
	case errors.Is(err, keystore.ErrConflict), errors.Is(err, keystore.ErrReadOnly):
		b.writes.end(n, false)
	}
	return rev, err
}

// interruptible is an input whose reader does not wait for somebody who types nothing more once ctx is done.
type interruptible struct {
	ctx context.Context //nolint:containedctx // io.Reader has no place for it, and both live as long as the run
	r   io.Reader
}

// Read implements io.Reader.
func (i interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buffer, done := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := i.r.Read(buffer)
		done <- result{n, err}
	}()
	select {
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	case r := <-done:
		return copy(p, buffer[:r.n]), r.err
	}
}
