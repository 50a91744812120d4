package cloudcmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// NewCmdCreateKeyPair returns the command create-key-pair, which is the same in every cloud.
func NewCmdCreateKeyPair(factory *cli.Factory) *cobra.Command {
	f := &Flags{To: &install.Options{}}
	cmd := &cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
		Args: cobra.ExactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.Begin(factory, cmd, func() error { return nil })
			if err != nil {
				return err
			}
			if err := install.CreateKeyPair(*f.To); err != nil {
				return f.Hinted(err)
			}
			return r.Result(map[string]string{"privateKeyFile": f.Path(ccoctl.PrivateKeyName), "publicKeyFile": f.Path(ccoctl.PublicKeyName)})
		},
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Define(all, "")
	f.Take(cmd, all, []string{"output-dir"})
	return cmd
}
