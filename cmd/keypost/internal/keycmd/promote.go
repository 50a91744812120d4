package keycmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
)

// PromoteOptions are the flags and arguments of key promote.
type PromoteOptions struct {
	f    *cli.Factory
	args []string // ISSUER and KID
	gate gateFlags
}

// NewCmdPromote returns key promote. It calls runF, if there is one, in place of its work.
func NewCmdPromote(f *cli.Factory, runF func(*PromoteOptions) error) *cobra.Command {
	o := &PromoteOptions{f: f}
	cmd := &cobra.Command{
		Use:   "promote ISSUER KID",
		Short: "Let a key sign: a next one, or a retired one again",
		Args:  cli.Exactly(2),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.args = args
			if runF != nil {
				return runF(o)
			}
			return promoteRun(ctx, o)
		}),
	}
	o.gate.register(cmd.Flags(), "relying parties that hold an older copy refuse its tokens")
	return cmd
}

func promoteRun(ctx context.Context, o *PromoteOptions) error {
	c, err := change(ctx, o.f, o.args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return o.gate.take(o.f.Change(o.gate.why, o.gate.force), func(c keystore.Change) (keystore.KeySet, error) { return s.Promote(c, id) })
	})
	if err != nil {
		return err
	}
	o.gate.warn(o.f)
	o.f.Notice("the cluster may now sign with %s; once every kube-apiserver does, retire the key before it", c.id)
	return printKeys(o.f, c.is)
}
