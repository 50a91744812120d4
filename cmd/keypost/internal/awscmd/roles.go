package awscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/install"
)

func newCmdCreateIAMRoles(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-iam-roles --name NAME --credentials-requests-dir DIR --identity-provider-arn ARN",
		Short: "Make the IAM roles that a release's CredentialsRequests ask for",
		Long: "Make the IAM roles that a release's CredentialsRequests ask for, and the Secrets that name them. Roles that are there\n" +
			"already are compared and get what they need more. Without --prune nothing goes; what is not asked for is named.",
	}, func(ctx context.Context, r *run) error { return r.createIAMRoles(ctx) })
	fs := f.define(cmd, "name", "dry-run", "diff", "user-tags", "adopt", "tighten")
	f.clientIDs(fs, "openshift", "sts.amazonaws.com")
	f.roles(cmd)
	fs.StringVar(&f.providerARN, "identity-provider-arn", "", "ARN of the IAM OIDC identity provider that the roles trust")
	cloudcmd.Required(cmd, "name", "identity-provider-arn")
	return cmd
}

func (r *run) createIAMRoles(ctx context.Context) error {
	url, err := api.ProviderURL(r.providerARN)
	if err != nil {
		return fmt.Errorf("--identity-provider-arn: %w", err)
	}
	if r.IssuerURL != "" && r.IssuerURL != url {
		return fmt.Errorf("--issuer-url %s is not the issuer of --identity-provider-arn, %s", r.IssuerURL, url)
	}
	made, err := aws.CreateRoles(ctx, aws.RolesOptions{Options: r.Options, ProviderARN: r.providerARN, Roles: r.requested})
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	r.SayUpgrade(made.Secrets)
	return r.Result(map[string]any{"issuer": url, "provider": r.providerARN, "secrets": cloudcmd.Listed(made.Secrets), "dryRun": r.cloud.DryRun})
}

// roleFlags are those of aws create-role.
type roleFlags struct {
	flags
	accounts, policyARNs []string
	policyFile           string
}

func newCmdCreateRole(factory *cli.Factory) *cobra.Command {
	f := &roleFlags{flags: flags{forRole: true}}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-role --role-name NAME --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make an IAM role for any workload's service account",
		Long: "Make an IAM role that pods of these service accounts may assume, for plain Kubernetes with the AWS pod identity\n" +
			"webhook, or for an operator of OLM. The issuer's IAM OIDC identity provider must be there. Prints the role's ARN, the\n" +
			"annotation, and the variable that an operator takes from its Subscription (spec.config.env).",
		Example: "  keypost aws create-role --role-name backup --service-account backup/agent \\\n" +
			"    --policy-arn arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess --issuer-url https://oidc.example.com/prod-a",
	}, func(ctx context.Context, r *run) error { return f.create(ctx, r) })
	fs := f.define(cmd, "diff", "user-tags", "adopt", "prune", "tighten", "permissions-boundary-arn")
	fs.Lookup("user-tags").Usage = "tags for the role, as KEY=VALUE,…"
	fs.Lookup("prune").Usage = "take away permissions that are not asked for, and the trust in other service accounts of the issuer"
	fs.Lookup("adopt").Usage = "take over a role that is not tagged as ours"
	f.clientIDs(fs, "openshift", "sts.amazonaws.com")
	fs.StringVar(&f.Name, "role-name", "", "name of the role")
	fs.StringArrayVar(&f.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may assume it (repeatable)")
	fs.StringArrayVar(&f.policyARNs, "policy-arn", nil, "ARN of a managed policy to attach (repeatable)")
	fs.StringVar(&f.policyFile, "policy-file", "", "JSON `FILE` with a permissions policy to put into the role, - for stdin")
	cloudcmd.Required(cmd, "role-name", "service-account", "issuer-url")
	return cmd
}

func (f *roleFlags) create(ctx context.Context, r *run) error {
	o := aws.RoleOptions{Options: f.Options, For: "--role-name", PolicyARNs: f.policyARNs, Boundary: f.requested.Boundary, Prune: f.requested.Prune}
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(f.accounts); err != nil {
		return err
	}
	if f.policyFile != "" {
		if o.Permissions, err = r.ReadFile(f.policyFile, 1<<20); err != nil {
			return err
		}
	}
	made, err := aws.CreateRole(ctx, o)
	if end, err := r.Ended(made.Preview, err); end {
		return err
	}
	env := []cloudcmd.EnvVar{{Name: "ROLEARN", Value: made.ARN}}
	v := struct {
		ARN        string            `json:"arn"`
		Annotation string            `json:"annotation"`
		Env        []cloudcmd.EnvVar `json:"env"`
	}{made.ARN, "eks.amazonaws.com/role-arn: " + made.ARN, env}
	if len(f.policyARNs) == 0 && f.policyFile == "" {
		r.Notice("keypost gives role %s no permissions: that takes --policy-arn or --policy-file", f.Name)
	}
	r.sayAnnotations(o.ServiceAccounts, made.ARN)
	return r.PrintIdentity(v, env, v.ARN, v.Annotation)
}

// sayAnnotations prints how pods get a role from the AWS pod identity webhook.
func (r *run) sayAnnotations(accounts []install.ServiceAccount, arn string) {
	r.Notice("next, where the AWS pod identity webhook runs, and before the pods start:")
	for _, a := range accounts {
		r.Notice("  %s", cli.Paste(fmt.Sprintf("kubectl annotate serviceaccount -n %s %s --overwrite eks.amazonaws.com/role-arn=%s", a.Namespace, a.Name, arn)))
	}
}
