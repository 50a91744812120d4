package azurecmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
)

func (r *run) newMigrate() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "migrate --name NAME --subscription-id ID --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as public storage, to a new one",
		Long: "Publish the keys of OLD under NEW, and give every identity of NAME a second federated credential, for NEW, beside each\n" +
			"that it has for OLD; then print the one command that switches the cluster. Tokens of both issuers are good from then\n" +
			"on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's credentials away; it refuses\n" +
			"(exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost azure migrate --name prod-a --subscription-id 11111111-2222-3333-4444-555555555555 \\\n" +
			"    --from-issuer-url https://proda.blob.core.windows.net/prod-a --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
	}, r.migrate, append(cloudcmd.MoveFlags(), "finish", "oidc-resource-group-name", "audience=audience of the cluster's tokens for Azure", "diff", "issuer-url")...)
}

func (r *run) migrate(ctx context.Context) error {
	move, err := r.Moving("trust")
	if err != nil {
		return err
	}
	migrate := azure.Migrate
	if r.Finish {
		migrate = azure.FinishMigration
	}
	done, err := migrate(ctx, azure.MigrateOptions{Options: r.Options, Move: move})
	if e, is := errors.AsType[*arm.Error](err); is && e.Problem == arm.NotOwned {
		return cli.WithHint(err, "name the resource group that the identities of %s were made in (--oidc-resource-group-name); if it is this one, give it that tag: "+
			"az tag update --operation Merge --resource-id %s --tags TAG", r.Name, cli.Quoted("/subscriptions/"+r.Subscription+"/resourceGroups/"+r.OIDCGroup))
	}
	switch end, err := r.MoveEnded(done.Preview, done.Gate, r.MoveHinted(err)); {
	case end:
		return err
	case r.Finish:
		r.Notice("Nothing of %s trusts %s any more. What create-identity made for workloads may still trust it: run keypost azure create-identity again for each, with %s", r.Name, move.Old,
			cli.Quoted("--drop-issuer-url", move.Old))
		r.Notice("Its storage account stays; what removes it, once nothing needs its documents or trusts it: az storage account delete")
		return r.Finished()
	}
	return r.sayNext(done.KeySet)
}

// sayNext prints what switches the cluster, and what comes before and after.
func (r *run) sayNext(set keystore.KeySet) error {
	r.Notice("What create-identity made for workloads of the cluster is not among the identities of %s, and takes no token of the new issuer yet: for each,", r.Name)
	r.Notice("run keypost azure create-identity again before the switch, with --issuer-url %s", cli.Quoted(r.IssuerURL))
	r.Notice("Azure takes tokens of both issuers now. A new federated credential may take minutes to count; then what switches the cluster:")
	if err := r.PrintSwitch(set, cloudcmd.SwitchOpenShift(r.IssuerURL)); err != nil {
		return err
	}
	r.Notice("With kubeadm and others, restart every kube-apiserver first with %s, then with the order switched.", cloudcmd.IssuerFlags(r.Move.Old, r.IssuerURL))
	r.SayFinish(set, true)
	return nil
}
