package azurecmd

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
)

// migrateFlags are those of azure migrate.
type migrateFlags struct {
	flags
	move cloudcmd.Migration
}

func newCmdMigrate(factory *cli.Factory) *cobra.Command {
	f := &migrateFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "migrate --name NAME --subscription-id ID --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as public storage, to a new one",
		Long: "Publish the keys of OLD under NEW, and give every identity of NAME a second federated credential, for NEW, beside each\n" +
			"that it has for OLD; then print the one command that switches the cluster. Tokens of both issuers are good from then\n" +
			"on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's credentials away; it refuses\n" +
			"(exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost azure migrate --name prod-a --subscription-id 11111111-2222-3333-4444-555555555555 \\\n" +
			"    --from-issuer-url https://proda.blob.core.windows.net/prod-a --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
	}, f.run)
	fs := f.define(cmd, "oidc-resource-group-name", "audience", "diff", "issuer-url")
	fs.Lookup("audience").Usage = "audience of the cluster's tokens for Azure"
	f.move.Define(fs, "take OLD's federated credentials away")
	cloudcmd.Required(cmd, "name", "subscription-id", "from-issuer-url", "issuer-url")
	return cmd
}

func (f *migrateFlags) run(ctx context.Context, r *run) error {
	if err := cmp.Or(f.move.CheckIssuers(f.IssuerURL, "trust"), f.move.CheckCluster(), f.move.CheckFinish()); err != nil {
		return err
	}
	migrate := azure.Migrate
	if f.move.Finish {
		migrate = azure.FinishMigration
		r.WithoutStore() // then the lifetime of tokens comes only from the pods
	} else if err := f.cloud.ReadIssuer(r.Factory); err != nil {
		return err
	}
	done, err := migrate(ctx, azure.MigrateOptions{Options: f.Options, Move: f.move.Reading(r.Factory)})
	if err == nil {
		r.SayGate(done.Gate)
	}
	switch end, err := r.Ended(done.Preview, f.hinted(err)); {
	case end:
		return err
	case f.move.Finish:
		r.Notice("Nothing of %s trusts %s any more. What create-identity made for workloads may still trust it: run keypost azure create-identity again for each, with %s", f.Name, f.move.Old,
			cli.Quoted("--drop-issuer-url", f.move.Old))
		r.Notice("Its storage account stays; what removes it, once nothing needs its documents or trusts it: az storage account delete")
		return r.Result(cloudcmd.Moved{From: f.move.Old, To: f.IssuerURL, Finished: true})
	}
	return f.sayNext(r, done.KeySet)
}

// hinted adds to an error of a migration what to do about it.
func (f *migrateFlags) hinted(err error) error {
	if e, is := errors.AsType[*arm.Error](err); is && e.Problem == arm.NotOwned {
		return cli.WithHint(err, "name the resource group that the identities of %s were made in (--oidc-resource-group-name); if it is this one, give it that tag: "+
			"az tag update --operation Merge --resource-id %s --tags TAG", f.Name, cli.Quoted("/subscriptions/"+f.Subscription+"/resourceGroups/"+f.OIDCGroup))
	}
	return f.move.Hinted(&f.cloud, err)
}

// sayNext prints what switches the cluster, and what comes before and after.
func (f *migrateFlags) sayNext(r *run, set keystore.KeySet) error {
	switching := cloudcmd.SwitchOpenShift(f.IssuerURL)
	r.Notice("What create-identity made for workloads of the cluster is not among the identities of %s, and takes no token of the new issuer yet: for each,", f.Name)
	r.Notice("run keypost azure create-identity again before the switch, with --issuer-url %s", cli.Quoted(f.IssuerURL))
	r.Notice("Azure takes tokens of both issuers now. A new federated credential may take minutes to count; then what switches the cluster:")
	if err := r.PrintSwitch(cloudcmd.Moved{From: f.move.Old, To: f.IssuerURL, KeySet: set.Name(), Switch: switching}); err != nil {
		return err
	}
	r.Notice("OpenShift's kube-apiservers restart one after the other, and accept tokens of %s for 24 hours more: the", f.move.Old)
	r.Notice("kubelet renews those of running pods within that time; restart what read its token only once. With kubeadm and")
	r.Notice("others, restart every kube-apiserver first with %s, then with the order switched.",
		cli.Quoted("--service-account-issuer="+f.move.Old, "--service-account-issuer="+f.IssuerURL))
	r.Notice("Then, as often as it takes:")
	r.Notice("  %s", f.move.Again(r.Run, true))
	r.SayLifetime(set)
	return nil
}
