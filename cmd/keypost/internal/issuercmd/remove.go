package issuercmd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
)

type removeOptions struct {
	*cli.Factory
	confirmURL, why string
	force           bool
}

func newRemove(f *cli.Factory) *cobra.Command {
	o := &removeOptions{Factory: f}
	cmd := f.Command("remove ISSUER --confirm-url URL --why REASON", "Withdraw an issuer for good", cobra.ExactArgs(1), o.run)
	cmd.Long = "Withdraw an issuer: its documents are served no more, and its URL is not given out again by accident. The\n" +
		"document stays as a tombstone; deleting its file would change nothing.\n\n" +
		"Relying parties that still use it refuse its tokens from then on."
	fs := cmd.Flags()
	fs.StringVar(&o.confirmURL, "confirm-url", "", "the issuer URL, typed once more")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.BoolVar(&o.force, "force", false, "withdraw it although a key is active: tokens are refused from then on")
	return cmd
}

func (o *removeOptions) run(ctx context.Context, args []string) error {
	s, err := o.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		if !slices.Contains(view.URLs(s), o.confirmURL) {
			return s, cli.WithHint(cli.Usagef("--confirm-url %s is not a URL of key set %q", o.confirmURL, s.Name()), "%s",
				cli.Command{"issuer", "show", string(s.Name())})
		}
		return s.Withdraw(o.Change(o.why, o.force))
	})
	if err != nil {
		return err
	}
	for _, u := range view.URLs(s) {
		o.Notice("remove what trusts %s as well, in every account, project and tenant (AWS: the IAM OIDC identity provider; Google Cloud: the workload identity provider; "+
			"Entra: the federated credentials); anyone who gets the host name next could speak for it", u)
	}
	for _, party := range s.Policy().Uploads() {
		o.Notice("delete or disable what holds a copy of its keys, or it goes on trusting them: %s", cli.OneLine(party))
	}
	return o.Print(view.Of(s, time.Now()), func(w *terminal.Table) {
		w.Row(fmt.Sprintf("withdrawn %s (generation %d)", s.Name(), s.Generation()))
	})
}
