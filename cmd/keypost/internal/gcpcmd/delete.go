package gcpcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/copycmd"
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
			"The key store stays as it is, and so does a bucket of ccoctl's. Where a policy names a copy of the keys that went with the\n" +
			"pool, sync-keys fails from then on: the command that takes it out of the policy is printed.",
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
	r.End()
	r.sayGone(deleted)
	return r.Deleted(deleted.Preview, deleted.Issuers, err)
}

// sayGone prints what takes the copies that went with the pool out of the policies that name them.
func (r *run) sayGone(deleted gcp.Deleted) {
	const then = "or gcp sync-keys fails from now on"
	if deleted.Unasked {
		c := r.Again()
		if !strings.Contains(r.Line(c), " --store ") {
			c = append(c, "--store", "STORE")
		}
		r.Notice("the copies of the keys went with the pool; what takes them out of the policies of a key store, %s, is printed by", then)
		r.Notice("  %s", c)
	}
	for _, n := range deleted.Copies {
		name := string(n.KeySet.Name())
		r.Notice("the copy of the keys of %s went with the pool; unless create-all is to bring it back, take it out of the policy, %s:", name, then)
		r.Notice("  %s", withoutCopies(n))
	}
}

// withoutCopies returns the command that takes copies out of a key set's policy.
func withoutCopies(n install.StillNamed) cli.Command {
	return copycmd.Setting(n.KeySet.Name(), n.KeySet.Policy(), n.Policy)
}
