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

func (r *run) newMigrate() *cobra.Command {
	return r.Command(cobra.Command{
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
	}, r.migrate, append(cloudcmd.MoveFlags(), "name=the cluster's name, with which its service accounts begin", "workload-identity-pool+= (default NAME)",
		"workload-identity-provider=ID of NEW's provider (default NAME and five characters made of NEW)", "credentials-requests-dir",
		"enable-tech-preview", "key-storage-method", "diff", "issuer-url", "from-workload-identity-provider")...)
}

func (r *run) migrate(ctx context.Context) error {
	move, err := r.Moving("provider")
	if err != nil {
		return err
	}
	r.ProviderID = cmp.Or(r.ProviderID, federation.SecondProviderID(r.Name, r.IssuerURL))
	done, err := gcp.Migrate(ctx, gcp.MigrateOptions{Options: r.Options, Move: move, From: r.from, Accounts: r.requested})
	if end, err := r.Ended(done.Preview, r.moveHint(err)); end {
		return err
	}
	if err := r.printPlan(done); err != nil {
		return err
	}
	r.SayLifetime(done.KeySet)
	r.sayCopy(done.KeySet, done.Copy)
	return nil
}

// moveHint adds to an error of a migration what to do about it.
func (r *run) moveHint(err error) error {
	if e, is := errors.AsType[*rest.Error](err); is {
		accounts := r.comparing(cmp.Or(r.from, r.Name), r.Path("."))
		switch e.Problem {
		case rest.NotOwned:
			return cli.WithHint(err, "for a provider, name another one: --workload-identity-provider ID; accounts and roles of this cluster are taken over by: %s",
				append(accounts, "--adopt"))
		case rest.OtherCopy: // there is no --adopt here
			return cli.WithHint(err, "bring it up to date, and run this again: %s", cli.Command{"sync-keys", r.IssuerURL})
		case rest.OtherIssuer:
			id := federation.ProviderID{Project: r.Project, Pool: cmp.Or(r.PoolID, r.Name), Provider: r.ProviderID}
			return cli.WithHint(err, "name another one: --workload-identity-provider ID; or, once nothing needs the old issuer: %s",
				append(makingProvider(r.Name, id, r.IssuerURL, r.Upload), "--adopt"))
		case rest.NothingToMove:
			return cli.WithHint(err, "is the provider another one (--from-workload-identity-provider, --workload-identity-pool), or has the cluster been moved?")
		case rest.AccountsDiffer:
			return cli.WithHint(err, "to see what differs: %s", append(accounts, "--diff"))
		}
	}
	return r.MoveHinted(err)
}

// comparing returns the command that compares the accounts, and writes the Secrets that name a provider.
func (r *run) comparing(provider, dir string) cli.Command {
	c := cli.Command{"gcp", "create-service-accounts", "--name", r.Name, "--project", r.Project, "--workload-identity-pool", cmp.Or(r.PoolID, r.Name),
		"--workload-identity-provider", provider, "--credentials-requests-dir", r.requested.Dir, "--output-dir", dir}
	if r.requested.TechPreview {
		c = append(c, "--enable-tech-preview")
	}
	return c
}

// moveStep is something to do, when what was to be done before is done.
type moveStep struct {
	do       string
	commands []string // none where there is no command for it
}

// printPlan prints the plan on stdout, which has nothing else.
func (r *run) printPlan(done gcp.Migrated) error {
	old, to := r.Move.Old, r.IssuerURL
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
		steps(slices.Concat(switchSteps(old, to), componentSteps(done), r.lastSteps(done)))
		w.Row()
		line("The way back, from any step but the last:")
		steps([]moveStep{
			{"Switch the issuer back.", []string{cloudcmd.SwitchOpenShift(old)}},
			{"Wait until every kube-apiserver has restarted with it.", []string{"oc adm wait-for-stable-cluster"}},
			{"Write the old Secrets again, put each back that was replaced, and delete its pods as above.",
				[]string{r.Line(r.comparing(done.From, r.Path("old"))), cli.Quoted("oc", "apply", "-f", r.Path("old/manifests"))}},
		})
	})
}

// switchSteps come first: a Secret that is replaced before the tokens are new ones is refused as well, and for longer.
func switchSteps(old, to string) []moveStep {
	return []moveStep{
		{"Switch the cluster's issuer. (With kubeadm and others, restart every kube-apiserver first with " +
			cloudcmd.IssuerFlags(old, to) + ", then with the order switched.)", []string{cloudcmd.SwitchOpenShift(to)}},
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
	return steps
}

// lastSteps are for anyone who has a credential file that keypost did not write, and for the old provider.
func (r *run) lastSteps(done gcp.Migrated) []moveStep {
	gcloud := func(words ...string) string {
		return cli.Quoted(append(append([]string{"gcloud", "iam", "workload-identity-pools", "providers"}, words...),
			"--workload-identity-pool", done.Pool, "--location", "global", "--project", done.Project.ID)...)
	}
	return []moveStep{
		{do: fmt.Sprintf("Do the same for everything else that uses the pool %s. For each account of create-service-account run that again with %s (it prints what an "+
			"operator of OLM takes); give any other credential file, and each request that names the old provider, the audience %s. Then restart what has read them.",
			done.Pool, cli.Quoted("--workload-identity-provider", done.To), done.Project.Audience(done.Pool, done.To))},
		{fmt.Sprintf("When every step above is done, and the longest token of %s has expired since: disable the old provider, which can be undone (providers "+
			"update-oidc --no-disabled), and once nothing has missed it, delete it. Policies of accounts, projects, folders and organizations may name the pool; "+
			"nobody has looked there.", r.Move.Old), []string{gcloud("update-oidc", done.From, "--disabled"), gcloud("delete", done.From)}},
	}
}
