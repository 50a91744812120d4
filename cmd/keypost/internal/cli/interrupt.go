package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/open"
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
// of whatever was under way is "context canceled" and no more.
func (f *Factory) stopped(cmd *cobra.Command, i Interruption) error {
	const again = "run the same command again, it goes on from there"
	done, open := f.writes.first(stored), f.writes.first(doubtful)
	switch {
	case open != "":
		return WithHint(fmt.Errorf("interrupted; whether key set %q was changed is unknown: %w", open, i), "look at it: %s",
			Command{"issuer", "show", string(open)})
	case done != "" && goesOn(cmd):
		return WithHint(fmt.Errorf("interrupted; key set %q is stored, and what else is done stays: %w", done, i), again)
	case done != "":
		return fmt.Errorf("interrupted; key set %q is changed and stored: %w", done, i)
	case goesOn(cmd):
		return WithHint(fmt.Errorf("interrupted; what is done so far stays: %w", i), again)
	}
	return fmt.Errorf("interrupted; nothing was changed: %w", i)
}

// goesOn reports whether a command makes several things, one after the other.
func goesOn(cmd *cobra.Command) bool {
	words := strings.Fields(cmd.CommandPath())
	return len(words) > 1 && slices.Contains([]string{"aws", "azure", "gcp", "export", "store", "mirror"}, words[1])
}

// writes are the key sets that a run began to write, and what became of each.
type writes struct {
	mu    sync.Mutex
	state map[keystore.Name]writeState
}

type writeState string

const (
	doubtful  writeState = "doubtful" // begun, and not known to have ended
	stored    writeState = "stored"
	unchanged writeState = "unchanged"
)

func (w *writes) note(n keystore.Name, s writeState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == nil {
		w.state = map[keystore.Name]writeState{}
	}
	w.state[n] = s
}

// first returns the first key set in a state, by its name; empty if there is none.
func (w *writes) first(s writeState) keystore.Name {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(w.state)) {
		if w.state[n] == s {
			return n
		}
	}
	return ""
}

// noted returns a store that was opened, with its writes noted, and notes whom it takes their author for.
func (f *Factory) noted(ctx context.Context, st *keystore.Store, err error) (*keystore.Store, error) {
	if err != nil {
		return nil, err
	}
	f.as = text.OneLine(open.Identity(ctx, st.Backend()), maxAs)
	return keystore.NewStore(noting{st.Backend(), &f.writes}), nil
}

// noting is a backend that notes what is written.
type noting struct {
	keystore.Backend
	writes *writes
}

// Put implements keystore.Backend.
func (b noting) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	b.writes.note(n, doubtful)
	rev, err := b.Backend.Put(ctx, n, old, doc)
	switch {
	case err == nil:
		b.writes.note(n, stored)
	case errors.Is(err, keystore.ErrConflict), errors.Is(err, keystore.ErrReadOnly):
		b.writes.note(n, unchanged)
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
