package gcpcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/install"
)

func (r *run) newDelete() *cobra.Command {
	cmd := r.Command(cobra.Command{
		Use:   "delete --name NAME --project PROJECT",
		Short: "Delete the service accounts and the pool that were made under a name",
		Long: "Delete the service accounts that keypost or ccoctl made under a name, what policies say of them, and the workload\n" +
			"identity pool with its providers. Google keeps deleted pools for 30 days: create-all brings the pool and the provider NAME\n" +
			"back, and says how to see the others, such as that of migrate. Accounts of create-service-account, custom roles, and\n" +
			"whatever belongs to another name, stay.\n\n" +
			"The key store stays as it is, and so does a bucket of ccoctl's. Where a policy names a copy of the keys that went with the\n" +
			"pool, sync-keys fails from then on: take it out of the policy once nobody will bring the pool back.",
	}, r.delete, "name", "credentials-requests-dir", "dry-run=print what would be changed and deleted, and do nothing",
		"force-delete-custom-roles")
	cmd.Flags().Lookup("credentials-requests-dir").Hidden = true // ccoctl needs it
	return cmd
}

func (r *run) delete(ctx context.Context) error {
	if r.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := gcp.Delete(ctx, gcp.DeleteOptions{Options: r.Options, CustomRoles: r.customRoles})
	return r.Deleted(deleted.Preview, deleted.Issuers, err, func(string) bool { return false })
}
