package keycmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore/catalog"
)

// ListOptions are the arguments of key list.
type ListOptions struct {
	f      *cli.Factory
	issuer string
}

// NewCmdList returns key list. It calls runF, if there is one, in place of its work.
func NewCmdList(f *cli.Factory, runF func(*ListOptions) error) *cobra.Command {
	o := &ListOptions{f: f}
	return &cobra.Command{
		Use:   "list ISSUER",
		Short: "List an issuer's keys",
		Args:  cli.Exactly(1),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.issuer = args[0]
			if runF != nil {
				return runF(o)
			}
			return listRun(ctx, o)
		}),
	}
}

func listRun(ctx context.Context, o *ListOptions) error {
	st, err := o.f.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, o.issuer)
	if err != nil {
		return err
	}
	return printKeys(o.f, s)
}
