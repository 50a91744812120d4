package issuercmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

type removeOptions struct {
	*cli.Factory
	confirmURL, why, admin string
	force                  bool
}

func newRemove(f *cli.Factory) *cobra.Command {
	o := &removeOptions{Factory: f}
	cmd := f.Command("remove ISSUER --confirm-url URL --why REASON", "Withdraw an issuer for good", cli.Exactly(1), o.run)
	cmd.Long = "Withdraw an issuer: its documents are served no more, and its URL is not given out again by accident. The\n" +
		"document stays as a tombstone; deleting its file would change nothing.\n\n" +
		"Whoever still relies on it is refused from then on. keypost issuer list --admin URL shows when a keypostd was last\n" +
		"asked for each issuer since its start, and --admin refuses one that was within a day. Each replica knows what it\n" +
		"was asked itself, and caches ask in the place of their clients; the metric keypost_issuer_last_asked_timestamp_seconds\n" +
		"has all replicas, and the time before their start."
	fs := cmd.Flags()
	fs.StringVar(&o.confirmURL, "confirm-url", "", "the issuer URL, typed once more")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.admin, "admin", "", "admin listener of a running keypostd (http://127.0.0.1:9090): refuse an issuer that it was asked for within a day")
	cli.Choices(fs, "admin", "http://127.0.0.1:9090")
	fs.BoolVar(&o.force, "force", false, "withdraw it although a key is active or somebody asks for it: tokens are refused from then on")
	return cmd
}

func (o *removeOptions) run(ctx context.Context, args []string) error {
	if o.confirmURL == "" || o.why == "" {
		return cli.Usagef("issuer remove needs --confirm-url URL and --why REASON")
	}
	var report issuer.Report
	if o.admin != "" {
		var err error
		if report, err = cli.AskAdmin(ctx, o.admin); err != nil {
			return err
		}
	}
	s, err := o.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		if !slices.Contains(view.URLs(s), o.confirmURL) {
			return s, cli.WithHint(cli.Usagef("--confirm-url %s is no URL of key set %q", o.confirmURL, s.Name()), "%s",
				cli.Command{"issuer", "show", string(s.Name())})
		}
		if err := inUse(report, s.Name(), time.Now()); err != nil && !o.force {
			return s, err
		}
		return s.Withdraw(o.Change(o.why, o.force))
	})
	if err != nil {
		return err
	}
	for _, u := range view.URLs(s) {
		o.Notice("remove what trusts %s as well, in every account, project and tenant (%s); whoever gets the host name next could speak for it", u, trusting(s.Policy().Parties()))
	}
	for _, party := range s.Policy().Uploads() {
		o.Notice("delete or disable what holds a copy of its keys, or it goes on trusting them: %s", cli.OneLine(party))
	}
	return o.Print(view.Of(s, time.Now()), func(w *tabwriter.Writer) {
		cli.Row(w, fmt.Sprintf("withdrawn %s (generation %d)", s.Name(), s.Generation()))
	})
}

// trusting names what trusts an issuer in the clouds of its relying parties; in all of them where no cloud is declared.
func trusting(parties []string) string {
	var all, declared []string
	for _, c := range []struct{ party, thing string }{
		{"aws", "AWS: the IAM OIDC identity provider"}, {"gcp", "Google Cloud: the workload identity provider"}, {"entra", "Entra: the federated credentials"},
	} {
		all = append(all, c.thing)
		if slices.Contains(parties, c.party) {
			declared = append(declared, c.thing)
		}
	}
	if declared == nil {
		declared = all
	}
	return strings.Join(declared, "; ")
}

// quiet is how long nobody must have asked for an issuer: no relying party that is known goes longer without, and tokens
// that live for longer are rare.
const quiet = 24 * time.Hour

// inUse returns an error if the report says that an issuer was asked for lately.
func inUse(report issuer.Report, n keystore.Name, now time.Time) error {
	for _, s := range report.Issuers {
		if at, url := latest(s.Asked); s.Name == n && now.Sub(at) < quiet {
			return fmt.Errorf("%s was asked for at %s: somebody relies on it; find out who, or give --force", url, at.UTC().Format(time.RFC3339))
		}
	}
	return nil
}
