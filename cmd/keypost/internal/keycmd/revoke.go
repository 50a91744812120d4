package keycmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type revokeOptions struct {
	*cli.Factory
	why, replacement string
	empty, force     bool
}

func newRevoke(f *cli.Factory) *cobra.Command {
	o := &revokeOptions{Factory: f}
	cmd := f.Command("revoke ISSUER KID --why REASON", "Take a key out at once, whatever its state: it is in wrong hands", cli.Exactly(2), o.run)
	fs := cmd.Flags()
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.replacement, "replacement", "", "`FILE` with the public key that is active at once in its place")
	fs.BoolVar(&o.force, "force", false, "revoke although this machine's clock is behind a recorded time, or another key set has revoked the replacement")
	fs.BoolVar(&o.empty, "leave-empty", false, "publish an empty JWKS if it was the last key")
	return cmd
}

func (o *revokeOptions) run(ctx context.Context, args []string) error {
	if o.why == "" {
		return cli.Usagef("key revoke needs --why REASON; it is recorded")
	}
	last, err := o.last()
	if err != nil {
		return err
	}
	if last.Replacement != nil {
		if err := o.checkReplacement(ctx, args[0], *last.Replacement); err != nil {
			return err
		}
	}
	c, err := change(ctx, o.Factory, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return s.Revoke(o.Change(o.why, o.force), id, last)
	})
	if err != nil {
		return err
	}
	warnNoneActive(o.Factory, c.after)
	now := time.Now()
	o.Notice("key %s is revoked; relying parties and caches may go on trusting it until %s", c.id, cli.Stamp(c.before.CopiesUntil(now, 0)))
	for _, k := range c.before.Keys() {
		if _, left := c.after.GoneLine(k.VerificationKey); left && k.ID() != c.id {
			o.Notice("key %s is the same key under another kid, and is revoked too", k.ID())
		}
	}
	o.Notice("purge the CDN, if there is one; sessions that AWS gave out already outlive the key by up to 12h")
	return printKeys(o.Factory, c.after, now)
}

func (o *revokeOptions) checkReplacement(ctx context.Context, issuer string, k keystore.VerificationKey) error {
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, issuer)
	if err != nil {
		return err
	}
	return cli.Others{Factory: o.Factory, Store: st, Force: o.force}.Check(ctx, s.Name(), k)
}

func (o *revokeOptions) last() (keystore.RevokeOptions, error) {
	last := keystore.RevokeOptions{LeaveEmpty: o.empty}
	if o.replacement == "" {
		return last, nil
	}
	if o.empty {
		return last, cli.Usagef("give --replacement or --leave-empty, not both")
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
