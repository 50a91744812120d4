package keycmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore/catalog"
)

func newList(f *cli.Factory) *cobra.Command {
	return &cobra.Command{
		Use:   "list ISSUER",
		Short: "List an issuer's keys",
		Args:  cli.Exactly(1),
		RunE:  f.Do(func(ctx context.Context, args []string) error { return listRun(ctx, f, args[0]) }),
	}
}

func listRun(ctx context.Context, f *cli.Factory, issuer string) error {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, issuer)
	if err != nil {
		return err
	}
	return printKeys(f, s, time.Now())
}
