package keycmd

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

type retireOptions struct {
	f    *cli.Factory
	args []string // ISSUER and KID
	gate gateFlags
}

func newRetire(f *cli.Factory) *cobra.Command {
	o := &retireOptions{f: f}
	cmd := &cobra.Command{
		Use:   "retire ISSUER KID --why STATEMENT",
		Short: "Record that a key signs no more; it stays published until its last token has expired",
		Args:  cli.Exactly(2),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.args = args
			return retireRun(ctx, o)
		}),
	}
	o.gate.register(cmd.Flags(), "tokens that it goes on to sign will be refused once it is removed")
	return cmd
}

func retireRun(ctx context.Context, o *retireOptions) error {
	if o.gate.why == "" {
		return cli.Usagef("key retire needs --why STATEMENT: how you know that no kube-apiserver signs with the key; it is recorded")
	}
	c, err := change(ctx, o.f, o.args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return o.gate.take(o.f.Change(o.gate.why, o.gate.force), func(c keystore.Change) (keystore.KeySet, error) {
			return s.Retire(c, id, keystore.Evidence{Statement: o.gate.why})
		})
	})
	if err != nil {
		return err
	}
	now := time.Now()
	o.gate.warn(o.f, now)
	if !slices.ContainsFunc(c.after.Keys(), func(k keystore.Key) bool { return k.State == keystore.Active }) {
		o.f.Warn("no key of %q is active any more", c.after.Name())
	}
	return printKeys(o.f, c.after, now)
}
