package gcpcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/gcp"
)

func newCmdCreateAccounts(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-service-accounts --name NAME --project PROJECT --workload-identity-pool POOL --workload-identity-provider PROVIDER --credentials-requests-dir DIR",
		Short: "Make the service accounts that a release's CredentialsRequests ask for",
		Long: "Make the service accounts that a release's CredentialsRequests ask for, with their roles, and the Secrets that name\n" +
			"them. Accounts that are there already are compared and brought up to date. A request that names an account of its\n" +
			"own (serviceAccountEmail, as operators of OLM do) gets only its Secret.",
	}, func(ctx context.Context, r *run) error { return r.createAccounts(ctx) })
	fs := f.define(cmd, "name", "workload-identity-pool", "workload-identity-provider", "credentials-requests-dir", "enable-tech-preview",
		"dry-run", "diff", "adopt", "prune", "issuer-url")
	fs.Lookup("issuer-url").Usage = "the issuer URL that the provider must have"
	cloudcmd.Required(cmd, "name", "project", "workload-identity-pool", "workload-identity-provider", "credentials-requests-dir")
	return cmd
}

func (r *run) createAccounts(ctx context.Context) error {
	made, err := gcp.CreateAccounts(ctx, r.Options, r.requested)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	r.SayUpgrade(made.Secrets)
	return r.Result(map[string]any{"pool": r.PoolID, "provider": r.ProviderID, "secrets": cloudcmd.Listed(made.Secrets), "dryRun": r.cloud.DryRun})
}

// accountFlags are those of gcp create-service-account.
type accountFlags struct {
	flags
	accounts, roles []string
}

func newCmdCreateAccount(factory *cli.Factory) *cobra.Command {
	f := &accountFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-service-account --account-id ID --service-account NAMESPACE/NAME --project PROJECT --workload-identity-pool POOL --workload-identity-provider PROVIDER",
		Short: "Make a Google service account for any workload's service account",
		Long: "Make a Google service account that pods of these Kubernetes service accounts may impersonate, for an operator of OLM\n" +
			"or any other workload. The provider must be there. Prints the account, and the variables that an operator takes\n" +
			"from its Subscription (spec.config.env).",
		Example: "  keypost gcp create-service-account --account-id backup --service-account openshift-adp/velero --role roles/compute.storageAdmin \\\n" +
			"    --project my-project --workload-identity-pool prod-a --workload-identity-provider prod-a",
	}, func(ctx context.Context, r *run) error { return f.create(ctx, r) })
	fs := f.define(cmd, "workload-identity-pool", "workload-identity-provider", "diff", "adopt", "prune", "issuer-url")
	fs.Lookup("issuer-url").Usage = "the issuer URL that the provider must have"
	fs.Lookup("prune").Usage = "let no other service account of the pool impersonate it, also if an earlier run let it"
	fs.Lookup("adopt").Usage = "take over a service account that keypost did not make"
	fs.StringVar(&f.Name, "account-id", "", "ID of the Google service account, before the @")
	fs.StringArrayVar(&f.accounts, "service-account", nil, "NAMESPACE/NAME of a Kubernetes service account that may impersonate it (repeatable)")
	fs.StringArrayVar(&f.roles, "role", nil, "role that it gets in the project, as roles/NAME (repeatable)")
	cloudcmd.Required(cmd, "account-id", "service-account", "project", "workload-identity-pool", "workload-identity-provider")
	return cmd
}

func (f *accountFlags) create(ctx context.Context, r *run) error {
	o := gcp.WorkloadOptions{Options: f.Options, For: "--account-id", Roles: f.roles, Prune: f.requested.Prune}
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(f.accounts); err != nil {
		return err
	}
	made, err := gcp.CreateWorkload(ctx, o)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	// Operators read the first four and make the audience of them; OpenShift's own text names the last two.
	env := []cloudcmd.EnvVar{
		{Name: "PROJECT_NUMBER", Value: made.Project.Number}, {Name: "POOL_ID", Value: f.PoolID}, {Name: "PROVIDER_ID", Value: f.ProviderID},
		{Name: "SERVICE_ACCOUNT_EMAIL", Value: made.Email}, {Name: "AUDIENCE", Value: made.Audience},
	}
	v := struct {
		Email    string            `json:"email"`
		Audience string            `json:"audience"`
		Env      []cloudcmd.EnvVar `json:"env"`
	}{made.Email, made.Audience, env}
	return r.PrintIdentity(v, env, made.Email)
}
