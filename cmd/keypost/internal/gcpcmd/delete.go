package gcpcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/uploadcmd"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/install"
)

func (r *run) newDelete() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "delete --name NAME --project PROJECT",
		Short: "Delete the service accounts and the pool that were made under a name",
		Long: "Delete the service accounts that keypost or ccoctl made under a name, what policies say of them, and the workload\n" +
			"identity pool with its providers. Google keeps deleted pools for 30 days: create-all brings the pool and the provider NAME\n" +
			"back, and says how to see the others, such as that of migrate. Accounts of create-service-account, custom roles, and\n" +
			"whatever belongs to another name, stay.\n\n" +
			"The key store stays as it is, and so does a bucket of ccoctl's. Where a policy names a copy of the keys that went with the\n" +
			"pool, sync-keys fails from then on: the command that takes it out of the policy is printed, and when that is to be done.",
	}, r.delete, "name", "credentials-requests-dir=`DIR` with CredentialsRequests, by whose names more of ccoctl's service accounts are found",
		"dry-run=print what would be changed and deleted, and do nothing", "force-delete-custom-roles")
}

func (r *run) delete(ctx context.Context) error {
	if r.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := gcp.Delete(ctx, gcp.DeleteOptions{Options: r.Options, Requests: r.requested.Dir, CustomRoles: r.customRoles})
	r.sayGone(deleted)
	return r.Deleted(deleted.Preview, deleted.Issuers, err, func(string) bool { return false })
}

// sayGone prints what takes the copies that went with the pool out of the policies that name them. Google may still bring them back for 30 days.
func (r *run) sayGone(deleted gcp.Deleted) {
	for _, n := range deleted.Copies {
		r.Notice("the policy of %s names a copy of the keys in the pool that is gone, and sync-keys fails for it; once nobody will bring the pool back "+
			"(Google keeps it for 30 days), take it out of the policy:", n.KeySet.Name())
		r.Notice("  %s", withoutCopies(n))
	}
}

// withoutCopies returns the command that takes copies out of a key set's policy.
func withoutCopies(n install.StillNamed) cli.Command {
	return uploadcmd.Setting(n.KeySet.Name(), n.KeySet.Policy(), n.Policy)
}
