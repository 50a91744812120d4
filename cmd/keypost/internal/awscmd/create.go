package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

func newCmdCreateKeyPair(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
	}, func(context.Context, *run) error { return install.CreateKeyPair(f.Options) })
	f.define(cmd, "output-dir")
	return cmd
}

func newCmdCreateIdentityProvider(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "create-identity-provider --name NAME --region REGION --issuer-url URL",
		Short: "Publish a cluster's key and make the IAM OIDC identity provider",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the IAM\n" +
			"OIDC identity provider. What is there already is compared and brought up to date.",
	}, func(ctx context.Context, r *run) error {
		if f.publicKeyFile == "" {
			f.publicKeyFile = f.path(ccoctl.PublicKeyName)
		}
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
	return cmd
}

// create makes an installation; without roles, an identity provider alone.
func (r *run) create(ctx context.Context, roles *install.RequestedRoles) error {
	o := install.CreateOptions{Roles: roles}
	if r.publicKeyFile != "" {
		keys, err := keysource.ReadFile(r.Factory, r.publicKeyFile)
		if err != nil {
			return err
		}
		if o.PublicKey, err = install.OnePublicKey(r.publicKeyFile, keys); err != nil {
			return err
		}
	}
	if !r.dryRun {
		if err := r.readIssuerFlags(); err != nil {
			return err
		}
	}
	o.Options = r.Options
	if r.bucket {
		r.Warn("--create-private-s3-bucket is not needed: keypostd serves the documents, so that there is no bucket to keep private")
	}
	made, err := install.Create(ctx, o)
	switch end, err := r.ended(made.Preview, err); {
	case end:
		return err
	case !r.dryRun:
		if roles != nil {
			r.nextSteps(made)
		}
		r.sayLifetime(made.KeySet)
	case roles != nil && r.Account == "":
		r.Notice("put the account's ID in the place of %s in %s, or give it with --account", install.UnknownAccount, r.path(ccoctl.RoleFiles))
	}
	return nil
}

// sayLifetime prints how to declare the lifetime of tokens in a key set that has none.
func (r *run) sayLifetime(s keystore.KeySet) {
	if s.Policy().TokenLifetime == nil {
		r.Notice("key set %s does not say how long the cluster's tokens live, and key remove will wait for that: %s", s.Name(),
			cli.Command{"issuer", "set", string(s.Name()), "--token-lifetime", "DURATION"})
	}
}

// nextSteps prints what to do with what was made.
func (r *run) nextSteps(made install.Created) {
	r.Notice("next, with the directory that openshift-install create manifests has filled:")
	r.Notice("  cp %s/* INSTALL-DIR/%s/", r.path(ccoctl.ManifestsDir), ccoctl.ManifestsDir)
	if made.PrivateKey == "" {
		r.Notice("  and put the signing key of %s into INSTALL-DIR/%s", r.publicKeyFile, ccoctl.SigningKeyName)
	} else {
		r.Notice("  cp -a %s INSTALL-DIR/", r.path(ccoctl.TLSDir))
	}
	r.Notice("then openshift-install create cluster; and once it signs tokens:")
	r.Notice("  %s", cli.Verify(made.KeySet.Name(), r.Dev, r.caFile, r.connect))
}
