package keycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
)

// step is a command that moves a key into another state, through a gate that --force passes.
type step struct {
	*cli.Factory
	danger string // what may break when --force passes a closed gate
	take   func(ctx context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error)
	notify func(c keyChange) // prints what follows from the change

	force   bool
	why     string
	confirm string                // the kid, typed again
	closed  *keystore.NotYetError // the gate that --force passed; nil if none was closed
}

func (o *step) command(use, short string, run func(ctx context.Context, args []string) error) *cobra.Command {
	cmd := o.Command(use, short, cobra.ExactArgs(2), run)
	cmd.Flags().BoolVar(&o.force, "force", false, "do it although the gate is closed (needs --why): "+o.danger)
	cmd.Flags().StringVar(&o.why, "why", "", "the reason; it is recorded")
	cmd.Flags().StringVar(&o.confirm, "confirm-kid", "", "the `KID` again, where --force passes a gate that would stay closed for more than an hour")
	return cmd
}

func (o *step) run(ctx context.Context, args []string) error {
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	c, err := changeIn(ctx, o.Factory, st, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		o.closed = nil
		if o.force { // try without, to know the gate that would have refused
			_, err := o.take(ctx, s, o.Change(o.why, false), id)
			o.closed, _ = errors.AsType[*keystore.NotYetError](err)
			if err := o.confirmed(id); err != nil {
				return s, err
			}
		}
		return o.take(ctx, s, o.Change(o.why, o.force), id)
	})
	if err != nil {
		return err
	}
	if o.closed != nil {
		o.Warn("forced: the gate would have been closed %s; what may break: %s", forHow(o.closed), o.danger)
	}
	o.notify(c)
	return printKeys(o.Factory, c.after, time.Now())
}

// impatience is how long a gate may still be closed for one --force to pass it. Anyone who skips more has to mean it.
const impatience = time.Hour

// confirmed returns an error if --force would pass a gate that stays closed for long, or for nobody knows how long, and the
// kid was not typed again.
func (o *step) confirmed(id keystore.KeyID) error {
	e := o.closed
	if e == nil || len(o.confirm) >= catalog.MinPrefix && strings.HasPrefix(string(id), o.confirm) {
		return nil
	}
	until := cmp.Or(e.Opens, e.Earliest)
	if until.IsZero() && e.Gate != gate.GateUndeclared || !until.IsZero() && time.Until(until) <= impatience {
		return nil
	}
	return cli.WithHint(cli.Usagef("the gate would be closed %s; what may break: %s", forHow(e), o.danger), "if you mean it, type the key again: %s", cli.Quoted("--confirm-kid", string(id)))
}

// forHow says for how long a gate stays closed, and why.
func forHow(e *keystore.NotYetError) string {
	until := cmp.Or(e.Opens, e.Earliest)
	if until.IsZero() {
		return "for nobody knows how long: " + e.Need
	}
	least := map[bool]string{true: " at least"}[e.Opens.IsZero()]
	return fmt.Sprintf("for another %v%s, until %s: %s", keystore.Duration(time.Until(until).Round(time.Minute)), least, cli.Stamp(until), e.Need)
}

// warnNoneActive warns of a key set of whose keys a cluster may sign with none.
func warnNoneActive(f *cli.Factory, s keystore.KeySet) {
	if cli.NoneActive(s) {
		f.Warn("no key of %q is active any more; a keypost-signer signs no token until one is", s.Name())
	}
}

func newRetire(f *cli.Factory) *cobra.Command {
	o := &step{
		Factory: f, danger: "tokens that it goes on to sign will be refused once it is removed",
		take: func(_ context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error) {
			return s.Retire(c, id, keystore.Evidence{Statement: c.Why})
		},
		notify: func(c keyChange) {
			warnNoneActive(f, c.after)
		},
	}
	cmd := o.command("retire ISSUER KID --why STATEMENT", "Record that a key signs no more; it stays published until its last token has expired", o.run)
	cmd.Flags().Lookup("why").Usage = "`STATEMENT`: how you know that no kube-apiserver signs with the key; it is recorded"
	return cmd
}

func newRemove(f *cli.Factory) *cobra.Command {
	var neverSigned bool
	o := &step{
		Factory: f, danger: "tokens that it signed are refused from then on",
		take: func(ctx context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error) {
			read, err := observe.Uploads(ctx, f, s)
			if err != nil && c.Force {
				f.Warn("what was read back of uploads is not known: %v", err)
			} else if err != nil {
				return s, err
			}
			return s.Remove(c, id, keystore.Removal{NeverSigned: neverSigned, Uploads: read})
		},
		notify: func(c keyChange) {
			f.Notice("key %s is gone", c.id)
			f.SayCopies(c.after)
			if k, _ := c.before.Key(c.id); k.State == keystore.Retired {
				f.Notice("no kube-apiserver was asked whether it signs with it again; to ask them: %s", cli.Command{"verify", string(c.after.Name()), "--kubeconfig", "FILE"})
			}
		},
	}
	cmd := o.command("remove ISSUER KID", "Take a retired key out once its last token has expired; it never comes back", o.run)
	cmd.Flags().BoolVar(&neverSigned, "never-signed", false, "assert that this next key has never signed")
	return cmd
}
