package gcpcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// migrateFlags are those of gcp migrate.
type migrateFlags struct {
	flags
	move cloudcmd.Migration
	from string // ID of a provider
}

func newCmdMigrate(factory *cli.Factory) *cobra.Command {
	f := &migrateFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "migrate --name NAME --project PROJECT --from-issuer-url OLD --issuer-url NEW --credentials-requests-dir DIR [--kubeconfig FILE]",
		Short: "Prepare the move of a live cluster from an old issuer, such as a public bucket, and print its plan",
		Long: "Publish the keys of OLD under NEW, make a second provider, for NEW, in the pool of the one for OLD, and write the Secrets\n" +
			"that name it; then print the plan of the move. OLD's provider, the service accounts and the cluster stay as they are.\n\n" +
			"Google's credential files name one provider, and a provider takes one issuer. So each component is moved by itself, and\n" +
			"is refused from when its token is NEW's until it has read its new Secret: unlike that of AWS and Azure, this move has a\n" +
			"gap. The plan keeps it short, and says how the way back is.\n\n" +
			"Each run does what is still to be done, and prints the plan again; it may be stopped at any point.",
		Example: "  keypost gcp migrate --name prod-a --project my-project --from-issuer-url https://storage.googleapis.com/prod-a-oidc \\\n" +
			"    --issuer-url https://oidc.example.com/prod-a --credentials-requests-dir ./credrequests --output-dir ./moved --kubeconfig admin.kubeconfig",
	}, f.run)
	fs := f.define(cmd, "name", "workload-identity-pool", "workload-identity-provider", "credentials-requests-dir",
		"enable-tech-preview", "key-storage-method", "diff", "issuer-url")
	fs.Lookup("name").Usage = "the cluster's name, with which its service accounts begin"
	fs.Lookup("workload-identity-pool").Usage += " (default NAME)"
	fs.Lookup("workload-identity-provider").Usage = "ID of NEW's provider (default NAME and five characters made of NEW)"
	f.move.Define(fs, "")
	fs.StringVar(&f.from, "from-workload-identity-provider", "", "ID of OLD's provider (default NAME)")
	cloudcmd.Required(cmd, "name", "project", "from-issuer-url", "issuer-url", "credentials-requests-dir")
	return cmd
}

func (f *migrateFlags) run(ctx context.Context, r *run) error {
	if err := cmp.Or(f.move.CheckIssuers(f.IssuerURL, "provider"), f.move.CheckCluster()); err != nil {
		return err
	}
	if err := f.cloud.ReadIssuer(r.Factory); err != nil {
		return err
	}
	f.ProviderID = cmp.Or(f.ProviderID, federation.SecondProviderID(f.Name, f.IssuerURL))
	done, err := gcp.Migrate(ctx, gcp.MigrateOptions{Options: f.Options, Move: f.move.Reading(r.Factory), From: f.from, Accounts: f.requested})
	if end, err := r.Ended(done.Preview, f.hinted(err)); end {
		return err
	}
	if err := f.print(r, done); err != nil {
		return err
	}
	r.SayLifetime(done.KeySet)
	r.sayCopy(done.KeySet, done.Copy)
	return nil
}

// hinted adds to an error of a migration what to do about it.
func (f *migrateFlags) hinted(err error) error {
	if e, is := errors.AsType[*rest.Error](err); is {
		switch e.Problem {
		case rest.NotOwned:
			return cli.WithHint(err, "for a provider, name another one: --workload-identity-provider ID; accounts and roles of this cluster are taken over by: %s",
				append(f.createAccounts(cmp.Or(f.from, f.Name), f.cloud.Path(".")), "--adopt"))
		case rest.OtherCopy: // there is no --adopt here
			return cli.WithHint(err, "bring it up to date, and run this again: %s", cli.Command{"sync-keys", f.IssuerURL})
		case rest.OtherIssuer:
			id := federation.ProviderID{Project: f.Project, Pool: cmp.Or(f.PoolID, f.Name), Provider: f.ProviderID}
			return cli.WithHint(err, "name another one: --workload-identity-provider ID; or, once nothing needs the old issuer: %s",
				append(makingProvider(f.Name, id, f.IssuerURL, f.Upload), "--adopt"))
		case rest.NothingToMove:
			return cli.WithHint(err, "is the provider another one (--from-workload-identity-provider, --workload-identity-pool), or has the cluster been moved?")
		case rest.AccountsDiffer:
			return cli.WithHint(err, "to see what differs: %s", append(f.createAccounts(cmp.Or(f.from, f.Name), f.cloud.Path(".")), "--diff"))
		}
	}
	return f.move.Hinted(&f.cloud, err)
}

// createAccounts returns the command that compares the accounts, and writes the Secrets that name a provider.
func (f *migrateFlags) createAccounts(provider, dir string) cli.Command {
	c := cli.Command{"gcp", "create-service-accounts", "--name", f.Name, "--project", f.Project, "--workload-identity-pool", cmp.Or(f.PoolID, f.Name),
		"--workload-identity-provider", provider, "--credentials-requests-dir", f.requested.Dir, "--output-dir", dir}
	if f.requested.TechPreview {
		c = append(c, "--enable-tech-preview")
	}
	return c
}

// moveStep is something to do, when what was to be done before is done.
type moveStep struct {
	do       string
	commands []string // none where there is no command for it
}

// print prints the plan on stdout, which has nothing else.
func (f *migrateFlags) print(r *run, done gcp.Migrated) error {
	old, to := f.move.Old, f.IssuerURL
	m := cloudcmd.Moved{From: old, To: to, KeySet: done.KeySet.Name(), Switch: cloudcmd.SwitchOpenShift(to)}
	return r.Print(m, func(w *terminal.Table) {
		line := func(format string, args ...any) { w.Row(fmt.Sprintf(format, args...)) }
		line("From %s, by the provider %s,", old, done.Project.ProviderName(done.Pool, done.From))
		line("to   %s, by the provider %s.", to, done.Project.ProviderName(done.Pool, done.To))
		w.Row()
		line("The gap: from when a component's token belongs to %s until it has read the Secret that names %s, Google refuses it "+
			"(invalid_grant: the issuer in the ID token does not match the expected one). An access token that it has by then lives for up to an hour, so that "+
			"one which is restarted within minutes mostly notices nothing; one whose access token ends meanwhile fails until it is restarted.", to, done.To)
		w.Row()
		steps := func(list []moveStep) {
			for i, s := range list {
				line("%d. %s", i+1, s.do)
				for _, c := range s.commands {
					w.Command(c)
				}
			}
		}
		steps(slices.Concat(switchSteps(old, to), componentSteps(done), f.lastSteps(r, done)))
		w.Row()
		line("The way back, from any step but the last:")
		steps([]moveStep{
			{"Switch the issuer back.", []string{cloudcmd.SwitchOpenShift(old)}},
			{"Wait until every kube-apiserver has restarted with it.", []string{"oc adm wait-for-stable-cluster"}},
			{"Write the old Secrets again, put each back that was replaced, and delete its pods as above.",
				[]string{r.Line(f.createAccounts(done.From, f.cloud.Path("old"))), cli.Quoted("oc", "apply", "-f", f.cloud.Path("old/manifests"))}},
		})
	})
}

// switchSteps come first: a Secret that is replaced before the tokens are new ones is refused as well, and for longer.
func switchSteps(old, to string) []moveStep {
	return []moveStep{
		{"Switch the cluster's issuer. (With kubeadm and others, restart every kube-apiserver first with " +
			cli.Quoted("--service-account-issuer="+old, "--service-account-issuer="+to) + ", then with the order switched.)", []string{cloudcmd.SwitchOpenShift(to)}},
		{"Wait until every kube-apiserver has restarted with it. Before that, a pod that starts may get a token of either issuer.",
			[]string{"oc adm wait-for-stable-cluster"}},
	}
}

// componentSteps move one component each: its Secret, and at once the pods that have read it. New pods get new tokens.
func componentSteps(done gcp.Migrated) (steps []moveStep) {
	for _, c := range done.Components {
		s := moveStep{fmt.Sprintf("Replace the Secret %s/%s, and right after it the pods that have read it.", c.Namespace, c.Secret),
			[]string{cli.Quoted("oc", "apply", "-f", c.File)}}
		for _, name := range c.ServiceAccounts {
			s.commands = append(s.commands, cli.Quoted("oc", "delete", "pods", "-n", c.Namespace, "--field-selector", "spec.serviceAccountName="+name))
		}
		steps = append(steps, s)
	}
	for _, c := range done.Named {
		steps = append(steps, moveStep{do: fmt.Sprintf("%s names the old provider itself: have it name %s as its audience (an operator of OLM: AUDIENCE, or PROVIDER_ID %s, in its "+
			"Subscription's spec.config.env), and restart its pods.", c.Request, done.Project.Audience(done.Pool, done.To), done.To)})
	}
	return steps
}

// lastSteps are for anyone who has a credential file that keypost did not write, and for the old provider.
func (f *migrateFlags) lastSteps(r *run, done gcp.Migrated) []moveStep {
	gcloud := func(words ...string) string {
		return cli.Quoted(append(append([]string{"gcloud", "iam", "workload-identity-pools", "providers"}, words...),
			"--workload-identity-pool", done.Pool, "--location", "global", "--project", done.Project.ID)...)
	}
	end := []string{gcloud("update-oidc", done.From, "--disabled")}
	for _, n := range done.OldCopies { // no upload to a provider that is disabled ends well
		end = append(end, r.Line(withoutCopies(n)))
	}
	return []moveStep{
		{do: fmt.Sprintf("Do the same for everything else that uses the pool %s. For each account of create-service-account run that again with %s (it prints what an "+
			"operator of OLM takes); give any other credential file the audience %s. Then restart what has read them.",
			done.Pool, cli.Quoted("--workload-identity-provider", done.To), done.Project.Audience(done.Pool, done.To))},
		{fmt.Sprintf("When every step above is done, and the longest token of %s has expired since: disable the old provider, which can be undone (providers "+
			"update-oidc --no-disabled), and once nothing has missed it, delete it. Policies of accounts, projects, folders and organizations may name the pool; "+
			"nobody has looked there.", f.move.Old), append(end, gcloud("delete", done.From))},
	}
}
