package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/auditcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/awscmd"
	"github.com/keypost/keypost/cmd/keypost/internal/azurecmd"
	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/enrollcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/gcpcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/issuercmd"
	"github.com/keypost/keypost/cmd/keypost/internal/keycmd"
	"github.com/keypost/keypost/cmd/keypost/internal/mirrorcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/rotatecmd"
	"github.com/keypost/keypost/cmd/keypost/internal/storecmd"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/uploadcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/verifycmd"
	"github.com/keypost/keypost/cmd/keypost/internal/watchcmd"
	"github.com/keypost/keypost/issuer/upload/holder"
)

// streams are the process's own: results go to out, all else to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
	connect  string // as [cli.Factory.Connect]
}

// run is one run of the program; it returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	f := &cli.Factory{In: s.in, Out: s.out, Err: s.err, Connect: s.connect}
	return f.Run(ctx, newRoot(f), args)
}

func newRoot(f *cli.Factory) *cobra.Command {
	root := &cobra.Command{
		Use:   "keypost",
		Short: "Write, rotate and check the key sets of a self-hosted OIDC issuer",
		Long: `Write, rotate and check the key sets of a self-hosted OIDC issuer.

ISSUER is the name of a key set or one of its issuer URLs; KID is a key ID or a
unique beginning of it, of at least 8 characters. Results go to stdout, all else
to stderr.

Exit codes: 0 done · 1 failed, or a check failed · 2 wrong usage · 3 --diff found
a difference · 75 not yet: a gate is closed, and the message says when or by what
it opens · 130 interrupted with Ctrl-C (143: by SIGTERM); a second one ends the
program at once, whatever it waits for`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.Root(root, issuercmd.NewCmdIssuer(f), keycmd.NewCmdKey(f), rotatecmd.NewCmdRotate(f), verifycmd.NewCmdVerify(f), storecmd.NewCmdExport(f), storecmd.NewCmdStore(f),
		uploadcmd.NewCmdSync(f, append(holder.Kinds(), gcpcmd.Uploads(f))...), mirrorcmd.NewCmdMirror(f), auditcmd.NewCmdAudit(f), watchcmd.NewCmdWatch(f), enrollcmd.NewCmdEnroll(f), awscmd.NewCmdAWS(f), azurecmd.NewCmdAzure(f), gcpcmd.NewCmdGCP(f), newVersion(f))
	return root
}

func newVersion(f *cli.Factory) *cobra.Command {
	return f.Command("version", "Print the version, as --version does", cobra.ExactArgs(0), func(context.Context, []string) error {
		v := cli.Version()
		return f.Print(map[string]string{"version": v}, func(w *terminal.Table) { w.Row("keypost " + v) })
	})
}
