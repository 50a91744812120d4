package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
)

// run is one run of a command.
type run struct {
	*cloudcmd.Run
	*flags
}

// work makes a cobra RunE of a command's own work.
func work(factory *cli.Factory, f *flags, do func(ctx context.Context, r *run) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		begun, err := f.cloud.Begin(factory, cmd, func() error { return f.check(cmd) })
		if err != nil {
			return err
		}
		f.Usual = !cmd.Flags().Changed("client-id")
		r := &run{begun, f}
		return r.hinted(do(cmd.Context(), r))
	}
}
