package keycmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

type promoteOptions struct {
	f    *cli.Factory
	args []string // ISSUER and KID
	gate gateFlags
}

func newPromote(f *cli.Factory) *cobra.Command {
	o := &promoteOptions{f: f}
	cmd := &cobra.Command{
		Use:   "promote ISSUER KID",
		Short: "Let a key sign: a next one, or a retired one again",
		Args:  cli.Exactly(2),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.args = args
			return promoteRun(ctx, o)
		}),
	}
	o.gate.register(cmd.Flags(), "relying parties that hold an older copy refuse its tokens")
	return cmd
}

func promoteRun(ctx context.Context, o *promoteOptions) error {
	c, err := change(ctx, o.f, o.args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return o.gate.take(o.f.Change(o.gate.why, o.gate.force), func(c keystore.Change) (keystore.KeySet, error) { return s.Promote(c, id) })
	})
	if err != nil {
		return err
	}
	now := time.Now()
	o.gate.warn(o.f, now)
	o.f.Notice("the cluster may now sign with %s; once every kube-apiserver does, retire the key before it", c.id)
	return printKeys(o.f, c.after, now)
}
