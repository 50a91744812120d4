package keycmd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type revokeOptions struct {
	*cli.Factory
	why, replacement   string
	empty, force, wait bool

	refused bool // the key set can be read, and its key must not be revoked like this
}

func newRevoke(f *cli.Factory) *cobra.Command {
	o := &revokeOptions{Factory: f}
	cmd := f.Command("revoke ISSUER KID --why REASON", "Take a key out at once, whatever its state: it is in wrong hands", cobra.ExactArgs(2), o.run)
	cmd.Long = "Take a key out at once, print who still trusts it, until when, and what ends that sooner; with --wait, look until no address\n" +
		"and no origin publishes it any more, and until each copy that the policy names was uploaded without it and read back\n" +
		"(keypost sync-keys), and until no older version of the key set is put back."
	cmd.Example = "  keypost key revoke prod-a 4f5cJkq9 --why 'laptop stolen' --wait\n" +
		"  keypost key revoke prod-a 4f5cJkq9 --why 'laptop stolen' --replacement next/sa.pub --wait"
	fs := cmd.Flags()
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.replacement, "replacement", "", "`FILE` with the public key that is active at once in its place")
	fs.BoolVar(&o.force, "force", false, "revoke although this machine's clock is behind a recorded time, and take a replacement that another key set has revoked")
	fs.BoolVar(&o.empty, "leave-empty", false, "publish an empty JWKS if it was the last key")
	cmd.MarkFlagsMutuallyExclusive("replacement", "leave-empty")
	fs.BoolVar(&o.wait, "wait", false, "then look, at every address and origin, until none publishes the key any more; may be run again for a key that is revoked")
	return cmd
}

func (o *revokeOptions) run(ctx context.Context, args []string) error {
	shield, err := observe.ReadShield()
	if err != nil {
		return err
	}
	network := fetch.Network{Shield: shield}
	last, err := o.last()
	if err != nil {
		return err
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return o.notRevoked(args, keyChange{}, err)
	}
	c, err := o.revoke(ctx, st, args, last)
	if catalog.KindOf(err) == catalog.KeyGone && o.wait { // an earlier run has revoked it
		s, err := o.Find(ctx, args[0])
		if err != nil {
			return err
		}
		return o.awaitGone(ctx, s, network)
	}
	if err != nil {
		return o.notRevoked(args, c, err)
	}
	warnNoneActive(o.Factory, c.after)
	now, seen := time.Now(), o.seen(ctx, c)
	if c.before.Policy().Reach == keystore.ReachCopies {
		o.Notice("key %s is revoked; nobody reads the documents, and who holds a copy of the keys goes on trusting it", c.id)
	} else {
		o.Notice("key %s is revoked; caches, and relying parties that fetch anew by themselves, may go on trusting it until %s", c.id, cli.Stamp(c.before.Gates().CopiesUntil(now, seen)))
	}
	for _, t := range stillTrusting(c.before, now, seen) {
		o.sayTrust(t)
	}
	for _, k := range c.before.Keys() {
		if _, left := c.after.GoneLine(k.VerificationKey); left && k.ID() != c.id {
			o.Notice("key %s is the same key under another kid, and is revoked too", k.ID())
		}
	}
	taken := o.warnElsewhere(ctx, st, c, last.Replacement)
	if err := printKeys(o.Factory, c.after, now); err != nil {
		return err
	}
	if steps := o.steps(ctx, c, taken != nil); len(steps) > 0 {
		o.Steps(string(c.after.Name()), steps, nil)
	}
	if taken != nil {
		return taken
	}
	if !o.wait {
		return nil
	}
	return o.awaitGone(ctx, c.after, network)
}

// steps returns what a person has to do now; where the replacement is taken, an error says what comes first. Where no key may sign any
// more, a next key is to: its gate keeps tokens from being refused that an active key could sign, and there is none.
func (o *revokeOptions) steps(ctx context.Context, c keyChange, taken bool) (all []string) {
	s := c.after
	if cli.Syncs(s) && len(s.Keys()) > 0 { // nobody takes an upload without a key
		all = append(all, "upload the keys that are left: "+o.Line(cli.SyncCommand(s.Name())))
	}
	for _, k := range s.Keys() {
		if !cli.NoneActive(s) || k.State != keystore.Next {
			continue
		}
		promote := cli.PromoteForced(s, k.ID(), o.why)
		if observe.MayPromote(ctx, o.Factory, s, k) {
			promote = cli.Command{"key", "promote", string(s.Name()), string(k.ID())}
		}
		all = append(all, fmt.Sprintf("let the next key %s sign: %s", k.ID(), o.Line(promote)))
	}
	if !o.wait && !taken {
		all = append(all, "wait until no server publishes the key; none was asked so far: "+
			o.Line(cli.Command{"key", "revoke", string(s.Name()), string(c.id), "--why", o.why, "--wait"}))
	}
	return all
}

// seen returns the longest times that recorded answers gave to caches: an edge may have added to what the policy says.
func (o *revokeOptions) seen(ctx context.Context, c keyChange) keystore.Cache {
	k, _ := c.before.Key(c.id)
	seen, err := observe.Recorded(ctx, o.Factory, c.before, k)
	if err != nil {
		o.Warn("what was observed cannot be read, so that the times below are only those of the policy: %v", err)
	}
	return seen.Cache
}

// revoke revokes the key that the arguments ISSUER KID mean. Nothing but its key set is read before that is written.
func (o *revokeOptions) revoke(ctx context.Context, st *keystore.Store, args []string, last keystore.RevokeOptions) (c keyChange, err error) {
	c.after, err = o.UpdateIn(ctx, st, args[0], c.of(args[1], func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		next, err := s.Revoke(o.Change(o.why, o.force), id, last)
		o.refused = err != nil
		return next, err
	}))
	if err == nil && last.Replacement != nil {
		err = o.CheckTaken(c.after.Policy(), true, *last.Replacement) // a warning: nothing is to hold up a revocation
	}
	return c, err
}

func (o *revokeOptions) last() (keystore.RevokeOptions, error) {
	last := keystore.RevokeOptions{LeaveEmpty: o.empty}
	if o.replacement == "" {
		return last, nil
	}
	keys, err := keysource.ReadFile(o.Factory, o.replacement)
	if err != nil {
		return last, err
	}
	if len(keys) != 1 {
		return last, cli.Usagef("--replacement %s holds %d keys, not one", o.replacement, len(keys))
	}
	last.Replacement = &keys[0]
	return last, nil
}
