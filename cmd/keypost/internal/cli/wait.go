package cli

import (
	"context"
	"os"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// Live returns the last line of the screen behind Err, by which a run shows what it waits for. Whatever is printed on Err goes through it.
func (f *Factory) Live() *terminal.Line {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		f.live = terminal.NewLine(f.Err, os.Getenv)
	}
	return f.live
}

// ReadAll is [catalog.ReadAll], and shows how far it is.
func (f *Factory) ReadAll(ctx context.Context, st *keystore.Store, but ...keystore.Name) (catalog.Contents, error) {
	p := f.Live().Progress("reading the store", "key sets")
	defer p.End()
	return catalog.ReadAll(ctx, keystore.NewStore(Counting{st.Backend(), p.Of, p.Done}), but...)
}

// Counting tells how many documents of a backend are listed, and of each that was read.
type Counting struct {
	keystore.Backend
	Listed, Read func(n int)
}

// List implements keystore.Backend.
func (c Counting) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	listed, err := c.Backend.List(ctx)
	c.Listed(len(listed))
	return listed, err
}

// Get implements keystore.Backend.
func (c Counting) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	defer c.Read(1)
	return c.Backend.Get(ctx, n)
}

// LookEvery is how long a command that waits for a gate sleeps at most: less than a complete look stays fresh.
const LookEvery = 10 * time.Minute

// PauseFor returns how long to sleep before a closed gate is tried again: until it opens, but no longer than [LookEvery]; soon
// if it opens by an act, which somebody may be about to do.
func PauseFor(e *keystore.NotYetError, soon time.Duration) time.Duration {
	if e.Opens.IsZero() {
		return soon
	}
	return min(max(time.Until(e.Opens), 0), LookEvery)
}

// Pause waits for d, or for the end of ctx, whose cause is the error.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// NotBefore returns t in UTC to the second, as results have it: nothing that opens at t is open before. Zero stays zero.
func NotBefore(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}
