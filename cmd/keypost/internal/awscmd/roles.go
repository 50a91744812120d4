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

func (r *run) newCreateIAMRoles() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-iam-roles --name NAME --credentials-requests-dir DIR --identity-provider-arn ARN",
		Short: "Make the IAM roles that a release's CredentialsRequests ask for",
		Long: "Make the IAM roles that a release's CredentialsRequests ask for, and the Secrets that name them. Roles that are there\n" +
			"already are compared and get what they need more. Without --prune nothing goes; what is not asked for is named.",
	}, r.createIAMRoles, "name", "dry-run", "diff", "user-tags", "adopt", "client-id", "credentials-requests-dir", "enable-tech-preview",
		"prune", "permissions-boundary-arn", "identity-provider-arn")
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
	return r.Result(map[string]any{"issuer": url, "provider": r.providerARN, "secrets": cloudcmd.Listed(made.Secrets), "dryRun": r.DryRun})
}

func (r *run) newCreateRole() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-role --role-name NAME --service-account NAMESPACE/NAME --issuer-url URL",
		Short: "Make an IAM role for any workload's service account",
		Long: "Make an IAM role that pods of these service accounts may assume, for plain Kubernetes with the AWS pod identity\n" +
			"webhook, or for an operator of OLM. The issuer's IAM OIDC identity provider must be there. Prints the role's ARN, the\n" +
			"annotation, and the variable that an operator takes from its Subscription (spec.config.env).",
		Example: "  keypost aws create-role --role-name backup --service-account backup/agent \\\n" +
			"    --policy-arn arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess --issuer-url https://oidc.example.com/prod-a",
	}, r.createRole, "diff", "user-tags=tags for the role, as KEY=VALUE,…", "adopt=take over a role that is not tagged as ours", "client-id",
		"prune=take away permissions and policies that are not asked for, and the trust in other service accounts of the issuer", "permissions-boundary-arn",
		"role-name", "service-account", "policy-arn", "policy-file")
}

func (r *run) createRole(ctx context.Context) error {
	o := aws.RoleOptions{Options: r.Options, For: "--role-name", PolicyARNs: r.policyARNs, Boundary: r.requested.Boundary}
	o.Name = r.roleName
	var err error
	if o.ServiceAccounts, err = cloudcmd.ServiceAccounts(r.accounts); err != nil {
		return err
	}
	if r.policyFile != "" {
		if o.Permissions, err = r.ReadFile(r.policyFile, 1<<20); err != nil {
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
	if len(r.policyARNs) == 0 && r.policyFile == "" {
		r.Notice("keypost gives role %s no permissions: that takes --policy-arn or --policy-file", r.roleName)
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
