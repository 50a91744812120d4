package azurecmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
)

// identityFlags are those of azure create-identity.
type identityFlags struct {
	flags
	accounts []string
	wanted   azure.WorkloadOptions
}

func newCmdCreateIdentity(factory *cli.Factory) *cobra.Command {
	f := &identityFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-identity --name NAME --resource-group GROUP --region REGION --subscription-id ID --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make a managed identity for any workload's service account",
		Long: "Make a managed identity that pods of these service accounts may use, for an operator of OLM or any other workload, with\n" +
			"roles that exist (--role), or with one of its own (--permission). Prints the variables that an operator takes from its\n" +
			"Subscription (spec.config.env). delete never takes it away.",
		Example: "  keypost azure create-identity --name loki --resource-group observability --region westeurope \\\n" +
			"    --subscription-id 11111111-2222-3333-4444-555555555555 --service-account openshift-logging/loki \\\n" +
			"    --role \"Storage Blob Data Contributor\" --issuer-url https://oidc.example.com/prod-a",
	}, func(ctx context.Context, r *run) error { return f.create(ctx, r) })
	fs := f.define(cmd, "diff", "issuer-url", "user-tags", "adopt", "prune", "audience")
	fs.Lookup("issuer-url").Usage = "the issuer URL that the identity trusts"
	fs.Lookup("user-tags").Usage = "tags for the identity, as KEY=VALUE,…"
	fs.Lookup("adopt").Usage = "take over an identity that is not tagged as ours" + adoptedUnknown
	fs.Lookup("prune").Usage = "take away what this run does not ask for: roles that an earlier run assigned, and other service accounts of the issuer"
	fs.StringArrayVar(&f.Drop, "drop-issuer-url", nil, "an old issuer URL: it takes no token of that issuer any more, of whatever service account (repeatable)")
	fs.StringVar(&f.OIDCGroup, "resource-group", "", "resource group of the identity; it is made if it is not there")
	fs.StringArrayVar(&f.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may use it (repeatable)")
	fs.StringArrayVar(&f.wanted.Roles, "role", nil, "name of a role that is there, to be assigned (repeatable)")
	fs.StringArrayVar(&f.wanted.Actions, "permission", nil, "action of a custom role to be made for it (repeatable)")
	fs.StringArrayVar(&f.wanted.DataActions, "data-permission", nil, "data action of that custom role (repeatable)")
	fs.StringArrayVar(&f.wanted.Scopes, "scope", nil, "ID of a subscription, a resource group or a resource at which roles are assigned (repeatable; default its resource group)")
	cloudcmd.Required(cmd, "name", "resource-group", "region", "subscription-id", "service-account", "issuer-url")
	return cmd
}

func (f *identityFlags) create(ctx context.Context, r *run) error {
	if slices.Contains(f.Drop, f.IssuerURL) {
		return cli.Usagef("--drop-issuer-url is the --issuer-url %s that the identity is to trust", f.IssuerURL)
	}
	r.WithoutStore()
	o := f.wanted
	o.Options, o.For = f.Options, "--name"
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(f.accounts); err != nil {
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
