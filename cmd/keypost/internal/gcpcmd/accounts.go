package gcpcmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/gcp"
)

func (r *run) newCreateAccounts() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-service-accounts --name NAME --project PROJECT --workload-identity-pool POOL --workload-identity-provider PROVIDER --credentials-requests-dir DIR",
		Short: "Make the service accounts that a release's CredentialsRequests ask for",
		Long: "Make the service accounts that a release's CredentialsRequests ask for, with their roles, and the Secrets that name\n" +
			"them. Accounts that are there already are compared and brought up to date. A request that names an account of its\n" +
			"own (serviceAccountEmail, as operators of OLM do) gets only its Secret.",
	}, r.createAccounts, "name", "workload-identity-pool", "workload-identity-provider", "credentials-requests-dir", "enable-tech-preview",
		"dry-run", "diff", "adopt", "prune", "issuer-url=the issuer URL that the provider must have")
}

func (r *run) createAccounts(ctx context.Context) error {
	made, err := gcp.CreateAccounts(ctx, r.Options, r.requested)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	r.SayUpgrade(made.Secrets)
	return r.Result(map[string]any{"pool": r.PoolID, "provider": r.ProviderID, "secrets": cloudcmd.Listed(made.Secrets), "dryRun": r.DryRun})
}

func (r *run) newCreateAccount() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-service-account --account-id ID --service-account NAMESPACE/NAME --project PROJECT --workload-identity-pool POOL --workload-identity-provider PROVIDER",
		Short: "Make a Google service account for any workload's service account",
		Long: "Make a Google service account that pods of these Kubernetes service accounts may impersonate, for an operator of OLM\n" +
			"or any other workload. The provider must be there. Prints the account, and the variables that an operator takes\n" +
			"from its Subscription (spec.config.env).",
		Example: "  keypost gcp create-service-account --account-id backup --service-account openshift-adp/velero --role roles/compute.storageAdmin \\\n" +
			"    --project my-project --workload-identity-pool prod-a --workload-identity-provider prod-a",
	}, r.createAccount, "workload-identity-pool", "workload-identity-provider", "diff", "issuer-url=the issuer URL that the provider must have",
		"adopt=take over a service account that keypost did not make",
		"prune=let no other service account of the pool impersonate it, also if an earlier run let it",
		"account-id", "service-account", "role")
}

func (r *run) createAccount(ctx context.Context) error {
	o := gcp.WorkloadOptions{Options: r.Options, For: "--account-id", Roles: r.roles, Prune: r.requested.Prune}
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(r.accounts); err != nil {
		return err
	}
	made, err := gcp.CreateWorkload(ctx, o)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	// Operators read the first four and make the audience of them; OpenShift's own text names the last two.
	env := []cloudcmd.EnvVar{
		{Name: "PROJECT_NUMBER", Value: made.Project.Number}, {Name: "POOL_ID", Value: r.PoolID}, {Name: "PROVIDER_ID", Value: r.ProviderID},
		{Name: "SERVICE_ACCOUNT_EMAIL", Value: made.Email}, {Name: "AUDIENCE", Value: made.Audience},
	}
	v := struct {
		Email    string            `json:"email"`
		Audience string            `json:"audience"`
		Env      []cloudcmd.EnvVar `json:"env"`
	}{made.Email, made.Audience, env}
	return r.PrintIdentity(v, env, made.Email)
}
