package awscmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/install"
)

// newCmdCreateIAMRoles returns the command aws create-iam-roles.
func newCmdCreateIAMRoles(factory *cli.Factory) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "create-iam-roles --name NAME --credentials-requests-dir DIR --identity-provider-arn ARN",
		Short: "Make the IAM roles that a release's CredentialsRequests ask for",
		Long: "Make the IAM roles that a release's CredentialsRequests ask for, and the Secrets that name them. Roles that are there\n" +
			"already are compared and brought up to date: what a new release needs more comes before anything goes.",
		Args: cli.Exactly(0),
	}
	fs := cmd.Flags()
	f.inAccount(cmd, "AWS region whose IAM endpoint is called (needed outside the commercial partition)")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.tightenFlag(fs)
	f.roles(cmd)
	fs.StringVar(&f.providerARN, "identity-provider-arn", "", "ARN of the IAM OIDC identity provider that the roles trust")
	required(cmd, "identity-provider-arn")
	cmd.RunE = work(factory, f, func(ctx context.Context, r *run) error { return r.createIAMRoles(ctx) })
	return cmd
}

func (r *run) createIAMRoles(ctx context.Context) error {
	f := r.f
	url, err := awsiam.ProviderURL(f.providerARN)
	if err != nil {
		return fmt.Errorf("--identity-provider-arn: %w", err)
	}
	if f.IssuerURL != "" && f.IssuerURL != url {
		return fmt.Errorf("--issuer-url %s is not the issuer of --identity-provider-arn, %s", f.IssuerURL, url)
	}
	made, err := install.CreateRoles(ctx, install.RolesOptions{Options: f.Options, ProviderARN: f.providerARN, Roles: f.requested})
	r.journal.clear()
	switch {
	case err != nil:
		return err
	case made.Preview != nil:
		return r.show(made.Preview)
	}
	r.upgradeSteps(made.Secrets)
	return nil
}

// upgradeSteps prints what is left to do in a running cluster: namespaces first, or a Secret has nowhere to go.
func (r *run) upgradeSteps(secrets []install.Secret) {
	if len(secrets) == 0 {
		return
	}
	var namespaces []string
	for _, s := range secrets {
		namespaces = append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	r.Notice("next, for a running cluster: these namespaces must exist")
	for _, ns := range slices.Compact(namespaces) {
		r.Notice("  %s", ns)
	}
	r.Notice("then")
	for _, s := range secrets {
		r.Notice("  oc apply -f %s", s.File)
	}
	r.Notice("and, for an upgrade to another minor version")
	r.Notice("  oc annotate cloudcredential cluster cloudcredential.openshift.io/upgradeable-to=VERSION --overwrite")
}
