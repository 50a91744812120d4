package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// NewCmdCreateKeyPair returns the command aws create-key-pair.
func NewCmdCreateKeyPair(factory *cli.Factory) *cobra.Command {
	f := &Options{}
	cmd := &cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
		Args: cli.Exactly(0),
	}
	f.files(cmd.Flags())
	cmd.RunE = work(factory, f, func(_ context.Context, r *run) error {
		return install.CreateKeyPair(install.KeyPairOptions{Dir: f.outputDir, Report: r.report})
	})
	return cmd
}

// NewCmdCreateIdentityProvider returns the command aws create-identity-provider.
func NewCmdCreateIdentityProvider(factory *cli.Factory) *cobra.Command {
	f := &Options{}
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

// NewCmdCreateAll returns the command aws create-all.
func NewCmdCreateAll(factory *cli.Factory) *cobra.Command {
	f := &Options{}
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
	cmd.RunE = work(factory, f, func(ctx context.Context, r *run) error { return r.create(ctx, f.requestedRoles()) })
	return cmd
}

// create makes an installation; without roles, an identity provider alone.
func (r *run) create(ctx context.Context, roles *install.RequestedRoles) error {
	o, err := r.createOptions()
	if err != nil {
		return err
	}
	o.Roles = roles
	if r.f.bucket {
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
	case r.f.dryRun:
		if r.f.account == "" {
			r.Notice("put the account's ID in the place of %s in %s, or give it with --account", install.UnknownAccount, r.f.path(ccoctl.RoleFiles))
		}
		return nil
	}
	r.nextSteps(made)
	return nil
}

func (r *run) createOptions() (install.CreateOptions, error) {
	f := r.f
	o := install.CreateOptions{
		Target: f.target(), Store: r.keyStore(), Report: r.report, Mode: f.mode(),
		Name: f.name, Dir: f.outputDir, IssuerURL: f.issuerURL, Dev: f.dev,
		ClientIDs: f.clientIDs, Usual: f.usual, Thumbprints: f.thumbprints, Ownership: f.ownership(), MaxTrustLength: f.maxTrust,
	}
	if f.publicKeyFile != "" {
		keys, err := keysource.ReadFile(r.Factory, f.publicKeyFile)
		if err != nil {
			return o, err
		}
		if o.PublicKey, err = install.OnePublicKey(f.publicKeyFile, keys); err != nil {
			return o, err
		}
	}
	if f.dryRun {
		return o, nil
	}
	var err error
	if o.Policy, err = f.keySetPolicy(); err != nil {
		return o, err
	}
	o.Site, err = f.site()
	return o, err
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
	r.Notice("  %s", r.f.look(made.KeySet))
}
