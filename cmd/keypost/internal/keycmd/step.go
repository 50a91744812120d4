package keycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/keystore"
)

// step is a command that moves a key into another state, through a gate that --force passes.
type step struct {
	*cli.Factory
	danger string // what may break when --force passes a closed gate
	take   func(ctx context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error)
	notify func(c keyChange) // prints what follows from the change

	force  bool
	why    string
	closed *keystore.NotYetError // the gate that --force passed; nil if none was closed
}

func (o *step) command(use, short string) *cobra.Command {
	cmd := o.Command(use, short, cobra.ExactArgs(2), o.run)
	cmd.Flags().BoolVar(&o.force, "force", false, "do it although the gate is closed (needs --why): "+o.danger)
	cmd.Flags().StringVar(&o.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (o *step) run(ctx context.Context, args []string) error {
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	var c keyChange
	c.after, err = o.UpdateIn(ctx, st, args[0], c.of(args[1], func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		o.closed = nil
		if o.force { // try without, to know the gate that would have refused
			_, err := o.take(ctx, s, o.Change(o.why, false), id)
			o.closed, _ = errors.AsType[*keystore.NotYetError](err)
		}
		return o.take(ctx, s, o.Change(o.why, o.force), id)
	}))
	if err != nil {
		return err
	}
	if o.closed != nil {
		o.Warn("forced: the gate would have been closed %s; what may break: %s", forHow(o.closed), o.danger)
	}
	o.notify(c)
	return printKeys(o.Factory, c.after, time.Now())
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

func newPromote(f *cli.Factory) *cobra.Command {
	o := &step{
		Factory: f, danger: "relying parties that hold an older copy refuse its tokens",
		take: func(ctx context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error) {
			seen, err := observed(ctx, f, s, id)
			if err != nil && c.Force {
				f.Warn("what was observed cannot be read: %v", err)
			} else if err != nil {
				return s, err
			}
			return s.Promote(c, id, seen)
		},
		notify: func(c keyChange) {
			then := ""
			if slices.ContainsFunc(c.after.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active && k.ID() != c.id }) {
				then = "; once every kube-apiserver does, retire the key before it"
			}
			f.Notice("the cluster may now sign with %s%s", c.id, then)
		},
	}
	cmd := o.command("promote ISSUER KID", "Let a key sign: a next one, or a retired one again")
	cmd.Long = "Let a next key sign, once it was seen at every public address for longer than any cache could hide it: keypost issuer\n" +
		"observe records that; and once every copy that the policy names was read back with it for as long (keypost sync-keys).\n" +
		"What looks and waits until then is keypost rotate step --wait. A key that was retired may sign again at once."
	return cmd
}

// observed returns what was seen of a key. One that has signed may sign again whatever was seen, and one that was retired before it was
// promoted may not ([keystore.KeySet.Promote]).
func observed(ctx context.Context, f *cli.Factory, s keystore.KeySet, id keystore.KeyID) (keystore.Observed, error) {
	k, published := s.Key(id)
	if !published || k.State != keystore.Next && !k.PromotedAt.IsZero() {
		return keystore.Observed{}, nil
	}
	return observe.Recorded(ctx, f, s, k)
}

func newRetire(f *cli.Factory) *cobra.Command {
	o := &step{
		Factory: f, danger: "tokens that it goes on to sign will be refused once it is removed",
		take: func(_ context.Context, s keystore.KeySet, c keystore.Change, id keystore.KeyID) (keystore.KeySet, error) {
			return s.Retire(c, id, keystore.Evidence{Statement: c.Why})
		},
		notify: func(c keyChange) { warnNoneActive(f, c.after) },
	}
	cmd := o.command("retire ISSUER KID --why STATEMENT", "Record that a key signs no more; it stays published until its last token has expired")
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
	cmd := o.command("remove ISSUER KID", "Take a retired key out once its last token has expired; it never comes back")
	cmd.Flags().BoolVar(&neverSigned, "never-signed", false, "assert that this next key has never signed")
	return cmd
}
