package gcpcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
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
	r.record(ctx, done.KeySet, done.Copy) // before anything is printed, which may fail
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
		case rest.UnknownCopy: // there is no --adopt here
			return cli.WithHint(err, "say where sync-keys records (--observations URL), and the store that has the newest keys (--store); if this is the newest: %s",
				cli.Command{"sync-keys", f.IssuerURL, "--adopt", "--force"})
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

// migration is the plan of a move, as programs read it.
type migration struct {
	From   string        `json:"from"` // issuer URLs
	To     string        `json:"to"`
	KeySet keystore.Name `json:"keySet"`
	Old    string        `json:"oldProvider"` // full names
	New    string        `json:"newProvider"`
	Gap    string        `json:"gap"`
	Steps  []moveStep    `json:"steps"`
	Back   []moveStep    `json:"back"` // the way back, from any step but the last
}

// moveStep is something to do, when what was to be done before is done.
type moveStep struct {
	Kind     string   `json:"kind"` // switch, wait, component, request, other, end
	Do       string   `json:"do"`
	Commands []string `json:"commands"` // none where there is no command for it
	Secret   string   `json:"secret,omitempty"`
	Manifest string   `json:"manifest,omitempty"`
	Account  string   `json:"account,omitempty"` // email
	Users    []string `json:"users,omitempty"`   // NAMESPACE/NAME of service accounts
}

// print prints the plan on stdout, which has nothing else.
func (f *migrateFlags) print(r *run, done gcp.Migrated) error {
	m := migration{
		From: f.move.Old, To: f.IssuerURL, KeySet: done.KeySet.Name(),
		Old: done.Project.ProviderName(done.Pool, done.From), New: done.Project.ProviderName(done.Pool, done.To),
	}
	m.Gap = fmt.Sprintf("from when a component's token belongs to %s until it has read the Secret that names %s, Google refuses it "+
		"(invalid_grant: the issuer in the ID token does not match the expected one). An access token that it has by then lives for up to an hour, so that "+
		"one which is restarted within minutes mostly notices nothing; one whose access token ends meanwhile fails until it is restarted", m.To, done.To)
	f.switchSteps(&m)
	f.componentSteps(&m, done)
	f.otherStep(&m, done)
	f.endSteps(r, &m, done)
	return r.Print(m, func(w *terminal.Table) { m.write(w) })
}

func (m *migration) add(s moveStep) {
	if s.Commands == nil {
		s.Commands = []string{}
	}
	m.Steps = append(m.Steps, s)
}

// switchSteps come first: a Secret that is replaced before the tokens are new ones is refused as well, and for longer.
func (f *migrateFlags) switchSteps(m *migration) {
	m.add(moveStep{Kind: "switch", Do: "Switch the cluster's issuer. (With kubeadm and others, restart every kube-apiserver first with " +
		cli.Quoted("--service-account-issuer="+m.From, "--service-account-issuer="+m.To) + ", then with the order switched.)",
		Commands: []string{cloudcmd.SwitchOpenShift(m.To)}})
	m.add(moveStep{Kind: "wait", Do: "Wait until every kube-apiserver has restarted with it. Before that, a pod that starts may get a token of either issuer.",
		Commands: []string{"oc adm wait-for-stable-cluster"}})
}

// componentSteps move one component each: its Secret, and at once the pods that have read it. New pods get new tokens.
func (f *migrateFlags) componentSteps(m *migration, done gcp.Migrated) {
	for _, c := range done.Components {
		s := moveStep{Kind: "component", Secret: c.Namespace + "/" + c.Secret, Manifest: c.File, Account: c.Email,
			Do:       fmt.Sprintf("Replace the Secret %s/%s, and right after it the pods that have read it.", c.Namespace, c.Secret),
			Commands: []string{cli.Quoted("oc", "apply", "-f", c.File)}}
		for _, name := range c.ServiceAccounts {
			s.Users = append(s.Users, c.Namespace+"/"+name)
			s.Commands = append(s.Commands, cli.Quoted("oc", "delete", "pods", "-n", c.Namespace, "--field-selector", "spec.serviceAccountName="+name))
		}
		m.add(s)
	}
	for _, c := range done.Named {
		m.add(moveStep{Kind: "request", Secret: c.Namespace + "/" + c.Secret, Account: c.Email,
			Do: fmt.Sprintf("%s names the old provider itself: have it name %s as its audience (an operator of OLM: AUDIENCE, or PROVIDER_ID %s, in its "+
				"Subscription's spec.config.env), and restart its pods.", c.Request, done.Project.Audience(done.Pool, done.To), done.To)})
	}
}

// otherStep is for anyone who has a credential file that keypost did not write.
func (f *migrateFlags) otherStep(m *migration, done gcp.Migrated) {
	m.add(moveStep{Kind: "other", Do: fmt.Sprintf("Do the same for everything else that uses the pool %s. For each account of "+
		"create-service-account run that again with %s (it prints what an operator of OLM takes); give any other credential file the "+
		"audience %s. Then restart what has read them.",
		done.Pool, cli.Quoted("--workload-identity-provider", done.To), done.Project.Audience(done.Pool, done.To))})
}

// endSteps are the last one and the way back.
func (f *migrateFlags) endSteps(r *run, m *migration, done gcp.Migrated) {
	gcloud := func(words ...string) string {
		return cli.Quoted(append(append([]string{"gcloud", "iam", "workload-identity-pools", "providers"}, words...),
			"--workload-identity-pool", done.Pool, "--location", "global", "--project", done.Project.ID)...)
	}
	end := []string{gcloud("update-oidc", done.From, "--disabled")}
	for _, n := range done.OldCopies { // no upload to a provider that is disabled ends well
		end = append(end, r.Line(withoutCopies(n)))
	}
	m.add(moveStep{Kind: "end", Do: fmt.Sprintf("When every step above is done, and the longest token of %s has expired since: disable the old provider, which "+
		"can be undone (providers update-oidc --no-disabled), and once nothing has missed it, delete it. Policies of "+
		"accounts, projects, folders and organizations may name the pool; nobody has looked there.", m.From),
		Commands: append(end, gcloud("delete", done.From))})
	old := f.cloud.Path("old")
	m.Back = []moveStep{
		{Kind: "switch", Do: "Switch the issuer back.", Commands: []string{cloudcmd.SwitchOpenShift(m.From)}},
		{Kind: "wait", Do: "Wait until every kube-apiserver has restarted with it.", Commands: []string{"oc adm wait-for-stable-cluster"}},
		{Kind: "secrets", Do: "Write the old Secrets again, put each back that was replaced, and delete its pods as above.",
			Commands: []string{r.Line(f.createAccounts(done.From, old)), cli.Quoted("oc", "apply", "-f", f.cloud.Path("old/manifests"))}},
	}
}

// write prints the plan for people.
func (m *migration) write(w *terminal.Table) {
	line := func(format string, args ...any) {
		w.Row(fmt.Sprintf(format, args...))
	}
	line("From %s, by the provider %s,", m.From, m.Old)
	line("to   %s, by the provider %s.", m.To, m.New)
	w.Row()
	line("The gap: %s.", m.Gap)
	w.Row()
	steps := func(list []moveStep) {
		for i, s := range list {
			line("%d. %s", i+1, s.Do)
			for _, c := range s.Commands {
				w.Command(c)
			}
		}
	}
	steps(m.Steps)
	w.Row()
	line("The way back, from any step but the last:")
	steps(m.Back)
}
