package azurecmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
)

func (r *run) newCreateIdentity() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-identity --name NAME --resource-group GROUP --region REGION --subscription-id ID --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make a managed identity for any workload's service account",
		Long: "Make a managed identity that pods of these service accounts may use, for an operator of OLM or any other workload, with\n" +
			"roles that exist (--role), or with one of its own (--permission). Prints the variables that an operator takes from its\n" +
			"Subscription (spec.config.env). delete never takes it away.",
		Example: "  keypost azure create-identity --name loki --resource-group observability --region westeurope \\\n" +
			"    --subscription-id 11111111-2222-3333-4444-555555555555 --service-account openshift-logging/loki \\\n" +
			"    --role \"Storage Blob Data Contributor\" --issuer-url https://oidc.example.com/prod-a",
	}, r.createIdentity, "diff", "issuer-url=the issuer URL that the identity trusts", "user-tags=tags for the identity, as KEY=VALUE,…",
		"adopt=take over an identity that is not tagged as ours"+adoptedUnknown,
		"prune=take away what this run does not ask for: roles that an earlier run assigned, and other service accounts of the issuer",
		"audience", "drop-issuer-url", "resource-group", "service-account", "role", "permission", "data-permission", "scope")
}

func (r *run) createIdentity(ctx context.Context) error {
	if slices.Contains(r.Drop, r.IssuerURL) {
		return cli.Usagef("--drop-issuer-url is the --issuer-url %s that the identity is to trust", r.IssuerURL)
	}
	r.WithoutStore()
	o := r.wanted
	o.Options, o.For = r.Options, "--name"
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(r.accounts); err != nil {
		return err
	}
	made, err := azure.CreateIdentity(ctx, o)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	env := []cloudcmd.EnvVar{
		{Name: "CLIENTID", Value: made.ClientID}, {Name: "TENANTID", Value: made.TenantID}, {Name: "SUBSCRIPTIONID", Value: made.SubscriptionID},
		{Name: "REGION", Value: made.Region},
	}
	v := struct {
		ID       string            `json:"id"`
		Audience string            `json:"audience"`
		Env      []cloudcmd.EnvVar `json:"env"`
	}{made.ID, made.Audience, env}
	return r.PrintIdentity(v, env, made.ID)
}
