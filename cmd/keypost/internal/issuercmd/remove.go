package issuercmd

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
)

type removeOptions struct {
	f               *cli.Factory
	issuer          string
	confirmURL, why string
	force           bool
}

func newRemove(f *cli.Factory) *cobra.Command {
	o := &removeOptions{f: f}
	cmd := &cobra.Command{
		Use:   "remove ISSUER --confirm-url URL --why REASON",
		Short: "Withdraw an issuer for good",
		Long: "Withdraw an issuer: its documents are served no more, and its URL is not given out again by accident. The\n" +
			"document stays as a tombstone; deleting its file would change nothing.",
		Args: cli.Exactly(1),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.issuer = args[0]
			return removeRun(ctx, o)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&o.confirmURL, "confirm-url", "", "the issuer URL, typed once more")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.BoolVar(&o.force, "force", false, "withdraw it although a key is active: tokens that it signs are refused from then on")
	return cmd
}

func removeRun(ctx context.Context, o *removeOptions) error {
	f := o.f
	if o.confirmURL == "" || o.why == "" {
		return cli.Usagef("issuer remove needs --confirm-url URL and --why REASON")
	}
	s, err := f.Update(ctx, o.issuer, func(s keystore.KeySet) (keystore.KeySet, error) {
		if !slices.Contains(view.URLs(s), o.confirmURL) {
			return s, cli.WithHint(cli.Usagef("--confirm-url %s is no URL of key set %q", o.confirmURL, s.Name()), "%s",
				cli.Command{"issuer", "show", string(s.Name())})
		}
		return s.Withdraw(f.Change(o.why, o.force))
	})
	if err != nil {
		return err
	}
	for _, u := range view.URLs(s) {
		f.Notice("remove the IAM OIDC identity provider of %s in every account as well; whoever gets the host name next could speak for it", u)
	}
	return f.Print(view.Of(s, time.Now()), func(w *tabwriter.Writer) {
		cli.Row(w, fmt.Sprintf("withdrawn %s (generation %d)", s.Name(), s.Generation()))
	})
}
