package gcpcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/install"
)

func newCmdDelete(factory *cli.Factory) *cobra.Command {
	f := &flags{dryReads: true}
	customRoles := false
	cmd := f.command(factory, cobra.Command{
		Use:   "delete --name NAME --project PROJECT",
		Short: "Delete the service accounts and the pool that were made under a name",
		Long: "Delete the service accounts that keypost or ccoctl made under a name, what policies say of them, and the workload\n" +
			"identity pool with its providers. Google keeps deleted pools for 30 days: create-all brings the pool and the provider NAME\n" +
			"back, and names other providers, such as that of migrate, with the command that brings each back. Accounts of\n" +
			"create-service-account, custom roles, and whatever belongs to another name, stay.\n\n" +
			"The key store stays as it is, and so does a bucket of ccoctl's.",
	}, func(ctx context.Context, r *run) error { return r.delete(ctx, customRoles) })
	fs := f.define(cmd, "name", "project", "credentials-requests-dir", "dry-run")
	fs.Lookup("dry-run").Usage = "print what would be changed and deleted, and do nothing"
	fs.Lookup("credentials-requests-dir").Usage = "directory with CredentialsRequests, by whose names more of ccoctl's service accounts are found"
	fs.BoolVar(&customRoles, "force-delete-custom-roles", false, "also the custom roles that no other account of the project has now; other clusters may need them later")
	cloudcmd.Required(cmd, "name", "project")
	return cmd
}

func (r *run) delete(ctx context.Context, customRoles bool) error {
	if r.cloud.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := gcp.Delete(ctx, gcp.DeleteOptions{Options: r.Options, Requests: r.requested.Dir, CustomRoles: customRoles})
	return r.Deleted(deleted.Preview, deleted.Issuers, err)
}
