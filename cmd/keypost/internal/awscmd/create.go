package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// newCmdCreateKeyPair returns the command aws create-key-pair.
func newCmdCreateKeyPair(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
		Args: cli.Exactly(0),
	}
	f.files(cmd.Flags())
	cmd.RunE = work(factory, f, func(_ context.Context, r *run) error {
		return install.CreateKeyPair(f.Options)
	})
	return cmd
}

// newCmdCreateIdentityProvider returns the command aws create-identity-provider.
func newCmdCreateIdentityProvider(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "create-identity-provider --name NAME --region REGION --issuer-url URL",
		Short: "Publish a cluster's key and make the IAM OIDC identity provider",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the IAM\n" +
			"OIDC identity provider. What is there already is compared and brought up to date.",
		Args: cli.Exactly(0),
	}
	fs := cmd.Flags()
	f.inAccount(cmd, "AWS region whose IAM endpoint is called")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.provider(fs)
	required(cmd, "region", "issuer-url")
	cmd.RunE = work(factory, f, func(ctx context.Context, r *run) error {
		if f.publicKeyFile == "" {
			f.publicKeyFile = f.path(ccoctl.PublicKeyName)
		}
		return r.create(ctx, nil)
	})
	return cmd
}

// newCmdCreateAll returns the command aws create-all.
func newCmdCreateAll(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "create-all --name NAME --region REGION --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, provider, roles and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make the IAM OIDC identity provider and the roles, and write what the installer takes. It may be\n" +
			"stopped and run again at any point: what is there already is compared and brought up to date.",
		Args: cli.Exactly(0),
	}
	fs := cmd.Flags()
	f.inAccount(cmd, "AWS region whose IAM endpoint is called")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.provider(fs)
	f.roles(cmd)
	required(cmd, "region", "issuer-url")
	cmd.RunE = work(factory, f, func(ctx context.Context, r *run) error { return r.create(ctx, &f.requested) })
	return cmd
}

// create makes an installation; without roles, an identity provider alone.
func (r *run) create(ctx context.Context, roles *install.RequestedRoles) error {
	f := r.f
	o := install.CreateOptions{Roles: roles}
	if f.publicKeyFile != "" {
		keys, err := keysource.ReadFile(r.Factory, f.publicKeyFile)
		if err != nil {
			return err
		}
		if o.PublicKey, err = install.OnePublicKey(f.publicKeyFile, keys); err != nil {
			return err
		}
	}
	if !f.dryRun {
		if err := f.readIssuerFlags(); err != nil {
			return err
		}
	}
	o.Options = f.Options
	if f.bucket {
		r.Warn("--create-private-s3-bucket is not needed: keypostd serves the documents, so that there is no bucket to keep private")
	}
	made, err := install.Create(ctx, o)
	r.journal.clear()
	switch {
	case err != nil:
		return err
	case made.Preview != nil:
		return r.show(made.Preview)
	case roles == nil:
		return nil
	case f.dryRun:
		if r.f.Account == "" {
			r.Notice("put the account's ID in the place of %s in %s, or give it with --account", install.UnknownAccount, r.f.path(ccoctl.RoleFiles))
		}
		return nil
	}
	r.nextSteps(made)
	return nil
}

// nextSteps prints what to do with what was made.
func (r *run) nextSteps(made install.Created) {
	r.Notice("next, with the directory that openshift-install create manifests has filled:")
	r.Notice("  cp %s/* INSTALL-DIR/%s/", r.f.path(ccoctl.ManifestsDir), ccoctl.ManifestsDir)
	if made.PrivateKey == "" {
		r.Notice("  and put the signing key of %s into INSTALL-DIR/%s", r.f.publicKeyFile, ccoctl.SigningKeyName)
	} else {
		r.Notice("  cp -a %s INSTALL-DIR/", r.f.path(ccoctl.TLSDir))
	}
	r.Notice("then openshift-install create cluster; and once it signs tokens:")
	r.Notice("  %s", r.f.look(made.KeySet.Name()))
}
