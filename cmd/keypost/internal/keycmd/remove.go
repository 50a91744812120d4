package keycmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

type removeOptions struct {
	f           *cli.Factory
	args        []string // ISSUER and KID
	gate        gateFlags
	neverSigned bool
}

func newRemove(f *cli.Factory) *cobra.Command {
	o := &removeOptions{f: f}
	cmd := &cobra.Command{
		Use:   "remove ISSUER KID",
		Short: "Take a retired key out once its last token has expired; it never comes back",
		Args:  cli.Exactly(2),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.args = args
			return removeRun(ctx, o)
		}),
	}
	o.gate.register(cmd.Flags(), "tokens that it signed are refused from then on")
	cmd.Flags().BoolVar(&o.neverSigned, "never-signed", false, "assert that this next key has never signed")
	return cmd
}

func removeRun(ctx context.Context, o *removeOptions) error {
	c, err := change(ctx, o.f, o.args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return o.gate.take(o.f.Change(o.gate.why, o.gate.force), func(c keystore.Change) (keystore.KeySet, error) { return s.Remove(c, id, o.neverSigned) })
	})
	if err != nil {
		return err
	}
	now := time.Now()
	o.gate.warn(o.f, now)
	o.f.Notice("key %s is gone", c.id)
	return printKeys(o.f, c.after, now)
}
