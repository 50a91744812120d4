package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/ccoctl"
)

// installation are the flags of whatever publishes a key and makes a provider.
func installation(more ...string) []string {
	return append([]string{"name", "dry-run", "diff", "user-tags", "adopt", "public-key-file", "thumbprint", "client-id",
		"create-private-s3-bucket"}, more...)
}

func (r *run) newCreateIdentityProvider() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-identity-provider --name NAME --region REGION --issuer-url URL",
		Short: "Publish a cluster's key and make the IAM OIDC identity provider",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the IAM\n" +
			"OIDC identity provider. What is there already is compared and brought up to date. Without a file with the key, those\n" +
			"that the store has under the issuer URL count (keypost issuer add --kubeconfig).",
	}, func(ctx context.Context) error { return r.create(ctx, nil) }, installation("prune=take away the provider's client IDs and thumbprints that are not asked for")...)
}

func (r *run) newCreateAll() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-all --name NAME --region REGION --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, provider, roles and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make the IAM OIDC identity provider and the roles, and write what the installer takes. It may be\n" +
			"stopped and run again at any point: what is there already is compared and brought up to date.",
	}, func(ctx context.Context) error { return r.create(ctx, &r.requested) },
		installation("credentials-requests-dir", "enable-tech-preview", "prune=take away what is not asked for: roles, their policies, permissions "+
			"and service accounts, client IDs and thumbprints of the provider; without it nothing goes", "permissions-boundary-arn")...)
}

// create makes an installation; without roles, only an identity provider.
func (r *run) create(ctx context.Context, roles *aws.RequestedRoles) error {
	key, err := r.ReadNew(roles != nil)
	if err != nil {
		return err
	}
	made, err := aws.Create(ctx, aws.CreateOptions{Options: r.Options, Roles: roles, PublicKey: key, Stored: roles == nil && key == nil})
	switch end, err := r.Ended(made.Preview, err); {
	case end:
		return err
	case !r.DryRun:
		if roles != nil {
			r.SayInstall(made.Created)
		}
		r.SayLifetime(made.KeySet)
	case roles != nil && r.Account == "":
		r.Notice("put the account's ID in the place of %s in %s, or give it with --account", aws.UnknownAccount, r.Path(ccoctl.RoleFiles))
	}
	return r.Made(made.Created, map[string]any{"provider": made.ProviderARN, "roles": made.Roles, "secrets": made.Secrets})
}
