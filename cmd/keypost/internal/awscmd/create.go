package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/ccoctl"
)

func newCmdCreateIdentityProvider(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-identity-provider --name NAME --region REGION --issuer-url URL",
		Short: "Publish a cluster's key and make the IAM OIDC identity provider",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the IAM\n" +
			"OIDC identity provider. What is there already is compared and brought up to date. Without a file with the key, those\n" +
			"that the store has under the issuer URL count (keypost issuer add --kubeconfig).",
	}, func(ctx context.Context, r *run) error {
		f.cloud.UseOwnPublicKey()
		return r.create(ctx, nil)
	})
	f.installation(cmd)
	return cmd
}

func newCmdCreateAll(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-all --name NAME --region REGION --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, provider, roles and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make the IAM OIDC identity provider and the roles, and write what the installer takes. It may be\n" +
			"stopped and run again at any point: what is there already is compared and brought up to date.",
	}, func(ctx context.Context, r *run) error { return r.create(ctx, &f.requested) })
	f.installation(cmd)
	f.roles(cmd)
	cloudcmd.GroupHelp(cmd)
	return cmd
}

// create makes an installation; without roles, only an identity provider.
func (r *run) create(ctx context.Context, roles *aws.RequestedRoles) error {
	key, err := r.cloud.ReadNew(r.Factory)
	if err != nil {
		return err
	}
	o := aws.CreateOptions{Options: r.Options, Roles: roles, PublicKey: key, Stored: roles == nil && key == nil}
	if r.bucket {
		r.Warn("--create-private-s3-bucket is not needed: keypostd serves the documents, so that there is no bucket to keep private")
	}
	made, err := aws.Create(ctx, o)
	switch end, err := r.Ended(made.Preview, err); {
	case end:
		return err
	case !r.cloud.DryRun:
		if roles != nil {
			r.SayInstall(made.Created)
		}
		r.SayLifetime(made.KeySet)
	case roles != nil && r.Account == "":
		r.Notice("put the account's ID in the place of %s in %s, or give it with --account", aws.UnknownAccount, r.cloud.Path(ccoctl.RoleFiles))
	}
	return r.Result(struct {
		Issuer   string        `json:"issuer"`
		KeySet   keystore.Name `json:"keySet"`
		Provider string        `json:"provider"` // its ARN
		Roles    int           `json:"roles"`
		Secrets  int           `json:"secrets"`
		Dir      string        `json:"outputDir"`
		DryRun   bool          `json:"dryRun"`
	}{r.IssuerURL, made.KeySet.Name(), made.ProviderARN, made.Roles, made.Secrets, r.cloud.Path("."), r.cloud.DryRun})
}
