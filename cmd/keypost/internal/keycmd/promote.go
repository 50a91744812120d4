package keycmd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/rotation"
)

// promoteOptions are those of a step whose gate opens by what was seen at the public URLs.
type promoteOptions struct {
	step
	wait bool
}

func newPromote(f *cli.Factory) *cobra.Command {
	o := &promoteOptions{}
	o.step = step{
		Factory: f, danger: "relying parties that hold an older copy refuse its tokens", take: o.promote,
		notify: func(c keyChange) { notifyPromoted(f, c) },
	}
	cmd := o.command("promote ISSUER KID", "Let a key sign: a next one, or a retired one again", o.run)
	cmd.Long = "Let a next key sign, once it was seen at every public address for longer than any cache could hide it: keypost issuer\n" +
		"observe records that; and once every copy that the policy names was read back with it for as long (keypost sync-keys).\n" +
		"With --wait, look and record until the gate opens. A key that was retired may sign again at once."
	fs := cmd.Flags()
	fs.BoolVar(&o.wait, "wait", false, "observe and wait until the gate opens")
	cmd.MarkFlagsMutuallyExclusive("wait", "force")
	return cmd
}

// notifyPromoted says what comes after a promotion.
func notifyPromoted(f *cli.Factory, c keyChange) {
	others := 0 // active keys
	for _, k := range c.after.Keys() {
		if k.State == keystore.Active && k.ID() != c.id {
			others++
		}
	}
	if others == 0 {
		f.Notice("the cluster may now sign with %s", c.id)
		return
	}
	f.Notice("the cluster may now sign with %s; once every kube-apiserver does, retire the key before it", c.id)
}

func (o *promoteOptions) run(ctx context.Context, args []string) error {
	if o.wait {
		if err := o.awaitGate(ctx, args); err != nil {
			return err
		}
	}
	return o.step.run(ctx, args)
}

func (o *promoteOptions) promote(ctx context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error) {
	seen, err := o.observed(ctx, s, id)
	if err != nil && c.Force {
		o.Warn("what was observed cannot be read: %v", err)
	} else if err != nil {
		return s, err
	}
	return s.Promote(c, id, seen)
}

// waits reports whether a key may sign only once it was seen. One that has signed may sign again at once, and one that was retired
// before it was promoted may not ([keystore.KeySet.Promote]).
func waits(k keystore.Key) bool { return k.State == keystore.Next || k.PromotedAt.IsZero() }

// observed returns what was seen of a key; nothing of one that may sign again whatever was seen.
func (o *promoteOptions) observed(ctx context.Context, s keystore.KeySet, id keystore.KeyID) (keystore.Observed, error) {
	k, published := s.Key(id)
	if !published || !waits(k) {
		return keystore.Observed{}, nil
	}
	return observe.Recorded(ctx, o.Factory, s, k)
}

// lookSoon is how long --wait sleeps while something is missing that somebody may be about to repair.
const lookSoon = time.Minute

// awaitGate observes and waits until the gate is open. A gate that opens by neither is an error.
func (o *promoteOptions) awaitGate(ctx context.Context, args []string) error {
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	looker := &observe.Looker{Factory: o.Factory}
	d := rotation.Driver{Observer: looker, Change: func() keystore.Change { return o.Change(o.why, false) }}
	for {
		s, err := catalog.Find(ctx, st, args[0])
		if err != nil {
			return err
		}
		k, err := catalog.Key(s, args[1])
		if err != nil {
			return err
		}
		if waits(k) {
			if _, err := d.Observe(ctx, s, k); err != nil {
				return err
			}
		}
		_, err = o.promote(ctx, s, d.Change(), k.ID())
		e, closed := errors.AsType[*keystore.NotYetError](err)
		if err == nil {
			return nil
		}
		if !closed || !slices.Contains([]gate.Gate{gate.GateObserved, gate.GateFresh, gate.GateCaches, gate.GateCopies, gate.GateFetched}, e.Gate) {
			return o.AtGate(err, s)
		}
		o.Notice("waiting: %v", e)
		switch {
		case e.Gate == gate.GateCopies && cli.Syncs(s):
			o.Notice("this waits until somebody has uploaded and read back: %s", cli.SyncCommand(s.Name()))
		case e.Gate == gate.GateFetched:
			o.Notice("this waits until somebody has recorded a later fetch: %s", cli.FetchedCommand(s))
		}
		if err := cli.Pause(ctx, cli.PauseFor(e, lookSoon)); err != nil {
			return err
		}
		if e.Gate == gate.GateCaches { // one that is without the key meanwhile begins the wait anew
			if err := looker.Look(ctx, s); err != nil {
				return err
			}
		}
	}
}
