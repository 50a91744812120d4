// Package gcpcmd has the commands of keypost gcp.
package gcpcmd

import (
	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// NewCmdGCP returns the commands.
func NewCmdGCP(f *cli.Factory) *cobra.Command {
	return cli.Group("gcp", "Google Cloud: upload the published keys to providers that hold a copy of them", NewCmdSyncKeys(f))
}
