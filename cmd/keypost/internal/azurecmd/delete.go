package azurecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
)

func (r *run) newDelete() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "delete --name NAME --subscription-id ID",
		Short: "Delete the identities and custom roles that were made under a name",
		Long: "Delete the managed identities and custom roles that keypost or ccoctl made under a name, with whatever assigns a role\n" +
			"to these identities. What create-identity made, and whatever does not bear the name's tag, stays. So do the resource\n" +
			"group of the installation, which is the installer's, a storage account of ccoctl's, and the key store.",
	}, r.delete, "oidc-resource-group-name", "storage-account-name", "dry-run=print what would be deleted, and only read", "delete-oidc-resource-group")
}

func (r *run) delete(ctx context.Context) error {
	if r.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := azure.Delete(ctx, azure.DeleteOptions{Options: r.Options, Group: r.deleteGroup})
	return r.Deleted(deleted.Preview, deleted.Issuers, err, func(string) bool { return false })
}
