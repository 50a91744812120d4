// Package awscmd has the commands of keypost aws. A command turns its flags into options for provision/aws, and prints
// the events and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/aws.
package awscmd

import (
	"context"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/iampolicy"
)

// NewCmdAWS returns the commands of ccoctl aws, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdAWS(f *cli.Factory) *cobra.Command {
	return cloudcmd.Group("aws", "Register an issuer and roles with AWS; ccoctl aws, without a bucket", (&flags{}).all(), common(),
		cloudcmd.NewCmdCreateKeyPair(f), newCmdCreateIdentityProvider(f), newCmdCreateIAMRoles(f), newCmdCreateAll(f), newCmdDelete(f),
		newCmdCreateRole(f), newCmdMigrate(f))
}

// flags are those of all commands; each command registers the groups that it has.
type flags struct {
	aws.Options
	cloud         cloudcmd.Flags
	bucket, force bool
	forRole       bool // Name is a role's, not an installation's
	providerARN   string
	requested     aws.RequestedRoles
}

// command returns a command that takes only flags, which are still to be defined, and that does its work with them.
func (f *flags) command(factory *cli.Factory, c cobra.Command, do func(ctx context.Context, r *run) error) *cobra.Command {
	c.Args, c.RunE = cobra.ExactArgs(0), work(factory, f, do)
	return &c
}

// common are the flags of every command.
func common() []string {
	return []string{"region", "account", "issuer-url", "dev", "output-dir", "max-trust-length"}
}

// define registers those of the other flags that a command has, by their names.
func (f *flags) define(cmd *cobra.Command, names ...string) *pflag.FlagSet {
	return f.cloud.Take(cmd, f.all(), common(), names...)
}

// all returns every flag. What ccoctl has is spelled as there.
func (f *flags) all() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.cloud.To, f.cloud.Party = &f.Options.Options, "aws"
	f.cloud.Define(all, "files to be applied with the AWS CLI")
	all.StringVar(&f.Name, "name", "", "name of what is made: its tag, and the beginning of the roles' names")
	all.StringVar(&f.Region, "region", "", "AWS region whose IAM endpoint is called; needed outside the commercial partition, and where ccoctl needs it")
	all.StringVar(&f.Account, "account", "", "ID of the only AWS account in which anything may be changed")
	all.StringToStringVar(&f.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	all.BoolVar(&f.Adopt, "adopt", false, "take over a provider or role that is not tagged as ours")
	all.BoolVar(&f.Tighten, "tighten", false,
		"also take away what is not asked for: client IDs and thumbprints of the provider, other policies of the roles")
	all.StringArrayVar(&f.Thumbprints, "thumbprint", nil, "SHA-1 of a CA that AWS does not know, 40 hex digits (repeatable)")
	all.BoolVar(&f.bucket, "create-private-s3-bucket", false, "accepted for scripts written for ccoctl; there is no bucket")
	all.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port, and waits are short")
	all.StringVar(&f.requested.Dir, "credentials-requests-dir", "",
		"`DIR` with CredentialsRequests (oc adm release extract --credentials-requests)")
	all.BoolVar(&f.requested.TechPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	all.BoolVar(&f.requested.Prune, "prune", false,
		"take away what no CredentialsRequest asks for: roles, permissions, service accounts; without it nothing goes")
	all.Lookup("create-private-s3-bucket").Hidden = true
	all.IntVar(&f.MaxTrustLength, "max-trust-length", iampolicy.TrustLength,
		"characters that a trust policy may have, once the account's quota L-C07B4B0D is raised")
	all.StringVar(&f.requested.Boundary, "permissions-boundary-arn", "", "ARN of the policy that bounds every role's permissions")
	return all
}

func (f *flags) clientIDs(fs *pflag.FlagSet, usual ...string) {
	fs.StringArrayVar(&f.ClientIDs, "client-id", usual, "audience of tokens (repeatable; the whole list)")
	cli.Choices(fs, "client-id", "openshift", "sts.amazonaws.com")
}

// installation registers the flags of whatever publishes a key and makes a provider.
func (f *flags) installation(cmd *cobra.Command) {
	fs := f.define(cmd, "name", "dry-run", "diff", "user-tags", "adopt", "tighten",
		"public-key-file", "thumbprint", "create-private-s3-bucket")
	f.clientIDs(fs, "openshift", "sts.amazonaws.com")
	cloudcmd.Required(cmd, "name", "region", "issuer-url")
}

// roles registers the flags of whatever makes a release's roles.
func (f *flags) roles(cmd *cobra.Command) {
	f.define(cmd, "credentials-requests-dir", "enable-tech-preview", "prune", "permissions-boundary-arn")
	cloudcmd.Required(cmd, "credentials-requests-dir")
}

var accountForm = regexp.MustCompile(`^[0-9]{12}$`)

// check returns an error for flags of AWS's that are wrong by themselves.
func (f *flags) check(cmd *cobra.Command) error {
	if cmd.Flags().Lookup("name") != nil && cmd.Flags().Lookup("credentials-requests-dir") != nil {
		if err := aws.CheckName(f.Name); err != nil {
			return cli.Usagef("--name %w", err)
		}
	}
	switch {
	case f.Account != "" && !accountForm.MatchString(f.Account):
		return cli.Usagef("--account %q is not an account ID of 12 digits", f.Account)
	case cmd.Flags().Changed("max-trust-length") && (f.MaxTrustLength < iampolicy.TrustLength || f.MaxTrustLength > iampolicy.MaxTrustLength):
		return cli.Usagef("--max-trust-length %d: AWS allows %d to %d", f.MaxTrustLength, iampolicy.TrustLength, iampolicy.MaxTrustLength)
	}
	return nil
}

// run is one run of a command.
type run struct {
	*cloudcmd.Run
	*flags
}

// work makes a cobra RunE of a command's own work.
func work(factory *cli.Factory, f *flags, do func(ctx context.Context, r *run) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		begun, err := f.cloud.Begin(factory, cmd, func() error { return f.check(cmd) })
		if err != nil {
			return err
		}
		f.Usual = !cmd.Flags().Changed("client-id")
		r := &run{begun, f}
		return r.hinted(do(cmd.Context(), r))
	}
}
