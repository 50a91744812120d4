package azurecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
)

func newCmdDelete(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	group := false
	cmd := f.command(factory, cobra.Command{
		Use:   "delete --name NAME --subscription-id ID",
		Short: "Delete the identities and custom roles that were made under a name",
		Long: "Delete the managed identities and custom roles that keypost or ccoctl made under a name, with whatever assigns a role\n" +
			"to these identities. What create-identity made, and whatever does not bear the name's tag, stays. So do the resource\n" +
			"group of the installation, which is the installer's, a storage account of ccoctl's, and the key store.",
	}, func(ctx context.Context, r *run) error { return r.delete(ctx, group) })
	fs := f.define(cmd, "oidc-resource-group-name", "storage-account-name", "dry-run")
	fs.Lookup("dry-run").Usage = "print what would be deleted, and only read"
	fs.BoolVar(&group, "delete-oidc-resource-group", false, "also the resource group of the identities, if it belongs only to this name and has nothing of others in it")
	cloudcmd.Required(cmd, "name", "subscription-id")
	return cmd
}

func (r *run) delete(ctx context.Context, group bool) error {
	if r.cloud.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := azure.Delete(ctx, azure.DeleteOptions{Options: r.Options, Group: group})
	return r.Deleted(deleted.Preview, deleted.Issuers, err)
}
