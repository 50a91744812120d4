package azurecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/ccoctl"
)

func (r *run) newCreateIssuer() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-oidc-issuer --name NAME --region REGION --subscription-id ID --tenant-id ID --issuer-url URL",
		Short: "Publish a cluster's key and make the resource group of its identities",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, make the resource\n" +
			"group of the identities, and write the manifests with the issuer and the tenant. Without a file with the key, those\n" +
			"that the store has under the issuer URL count (keypost issuer add --kubeconfig).",
	}, func(ctx context.Context) error { return r.create(ctx, nil) }, append(issuerFlags(), "adopt")...)
}

func (r *run) newCreateAll() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-all --name NAME --region REGION --subscription-id ID --tenant-id ID --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, identities, roles and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make both resource groups, the managed identities with their federated credentials, roles and role\n" +
			"assignments, and write what the installer takes. It may be stopped and run again at any point: what is there already\n" +
			"is compared and brought up to date. Azure takes a federated credential of one identity every 4 seconds.",
	}, func(ctx context.Context) error { return r.create(ctx, &r.requested) },
		append(append(issuerFlags(), identityFlags()...), "adopt+="+adoptedIssuer)...)
}

// create makes an installation; without identities, only their resource group.
func (r *run) create(ctx context.Context, identities *azure.RequestedIdentities) error {
	key, err := r.ReadNew(identities != nil)
	if err != nil {
		return err
	}
	o := azure.CreateOptions{Options: r.Options, Identities: identities, PublicKey: key, Stored: identities == nil && key == nil}
	made, err := azure.Create(ctx, o)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	if r.DryRun {
		r.Notice("no key set was published, and nothing made in Azure, where no script is written; this does both, and fills in the client IDs: %s", r.Again("dry-run"))
		r.Notice("where something else makes what is to be in Azure, the key set comes first: %s", r.Publishing())
	} else {
		if identities != nil {
			r.Notice("install-config.yaml needs credentialsMode: Manual, and platform.azure.resourceGroupName: %s", r.InstallGroup)
			r.SayInstall(made.Created)
		}
		r.SayLifetime(made.KeySet)
	}
	return r.Made(made.Created, map[string]any{"tenant": made.Tenant, "identities": made.Identities, "secrets": made.Secrets})
}

func (r *run) newCreateIdentities() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-managed-identities --name NAME --region REGION --subscription-id ID --issuer-url URL --credentials-requests-dir DIR",
		Short: "Make the managed identities that a release's CredentialsRequests ask for",
		Long: "Make the managed identities that a release's CredentialsRequests ask for, with their federated credentials, roles and\n" +
			"role assignments, in resource groups that are made if need be, and the Secrets that name them. What is there already\n" +
			"is compared and brought up to date: what a new release needs more comes before anything goes. A request that names an\n" +
			"identity of its own (azureClientID, as operators of OLM do) gets only its Secret.",
	}, r.createIdentities, append(identityFlags(), "dry-run", "diff", "issuer-url=the issuer URL that the identities trust", "user-tags",
		"adopt+="+adoptedIssuer+adoptedUnknown, "oidc-resource-group-name")...)
}

func (r *run) createIdentities(ctx context.Context) error {
	r.WithoutStore()
	made, err := azure.CreateIdentities(ctx, azure.IdentitiesOptions{Options: r.Options, Identities: r.requested})
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	r.SayUpgrade(made.Secrets)
	if made.AllNew {
		r.Notice("a running cluster that had no managed identities needs %s of create-oidc-issuer, too", ccoctl.AzureWebhookFile("").Name)
	}
	return r.Result(map[string]any{"issuer": r.IssuerURL, "secrets": cloudcmd.Listed(made.Secrets), "dryRun": r.DryRun})
}
