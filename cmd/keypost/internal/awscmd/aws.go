// Package awscmd has the commands of keypost aws. A command turns its flags into options for provision/install, and prints
// the events and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/aws.
package awscmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/install"
)

// NewCmdAWS returns the commands of ccoctl aws, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdAWS(f *cli.Factory) *cobra.Command {
	return cli.Group("aws", "Register an issuer and roles with AWS; ccoctl aws, without a bucket",
		newCmdCreateKeyPair(f), newCmdCreateIdentityProvider(f), newCmdCreateIAMRoles(f), newCmdCreateAll(f), newCmdDelete(f),
		newCmdCreateRole(f), newCmdMigrate(f))
}

// flags are those of all commands; each command registers the groups that it has.
type flags struct {
	install.Options
	dryRun, diff, bucket, force bool
	forRole                     bool // Name is a role's, not an installation's
	publicKeyFile, providerARN  string
	requested                   install.RequestedRoles
	caFile, connect             string
	policy                      view.PolicyFlags
}

// command returns a command that takes flags alone, which are still to be defined, and that does its work with them.
func (f *flags) command(factory *cli.Factory, c cobra.Command, do func(ctx context.Context, r *run) error) *cobra.Command {
	c.Args, c.RunE = cli.Exactly(0), work(factory, f, do)
	return &c
}

// define registers those of the flags that a command has, by their names. What ccoctl has is spelled as there.
func (f *flags) define(cmd *cobra.Command, names ...string) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.StringVar(&f.Name, "name", "", "name of what is made: its tag, and the beginning of the roles' names")
	all.StringVar(&f.Region, "region", "", "AWS region whose IAM endpoint is called")
	all.StringVar(&f.Account, "account", "", "ID of the only AWS account in which anything may be changed")
	all.StringVar(&f.Dir, "output-dir", "", "directory for the files (default the current one)")
	all.BoolVar(&f.dryRun, "dry-run", false, "write files to be applied with the AWS CLI, and call nobody")
	all.BoolVar(&f.diff, "diff", false,
		"print what would be changed, and what is there beyond what is wanted; change nothing, and exit 3 if there is any")
	all.StringVar(&f.IssuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	all.StringToStringVar(&f.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	all.BoolVar(&f.Adopt, "adopt", false, "take over a provider or role that is not tagged as ours")
	all.BoolVar(&f.Tighten, "tighten", false, "also take away what is not asked for: client IDs of the provider, other policies of the roles")
	all.StringVar(&f.publicKeyFile, "public-key-file", "", "file with the cluster's public key (default OUTPUT-DIR/"+ccoctl.PublicKeyName+")")
	all.StringArrayVar(&f.Thumbprints, "thumbprint", nil, "SHA-1 of a CA that AWS does not know, 40 hex digits (repeatable)")
	all.BoolVar(&f.bucket, "create-private-s3-bucket", false, "accepted for scripts written for ccoctl; there is no bucket")
	all.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of the issuer, instead of the system's")
	all.StringVar(&f.connect, "connect", "", "HOST:PORT at which to look for the issuer instead of the URL's own addresses")
	all.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port, and waits are short")
	all.StringVar(&f.requested.Dir, "credentials-requests-dir", "",
		"directory with CredentialsRequests (oc adm release extract --credentials-requests)")
	all.BoolVar(&f.requested.TechPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	all.BoolVar(&f.requested.Prune, "prune", false, "delete the roles whose CredentialsRequest is gone")
	all.BoolVar(&f.requested.Keep, "keep-permissions", false, "take no permission away yet: for the run before an upgrade")
	all.StringVar(&f.requested.Boundary, "permissions-boundary-arn", "", "ARN of the policy that bounds every role's permissions")
	for _, name := range names {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
	return cmd.Flags()
}

func (f *flags) clientIDs(fs *pflag.FlagSet, usual ...string) {
	fs.StringArrayVar(&f.ClientIDs, "client-id", usual, "audience of tokens (repeatable; the whole list)")
}

func (f *flags) trustLength(fs *pflag.FlagSet) {
	fs.IntVar(&f.MaxTrustLength, "max-trust-length", iampolicy.TrustLength,
		"characters that a trust policy may have, once the account's quota L-C07B4B0D is raised")
}

// installation registers the flags of whatever publishes a key and makes a provider.
func (f *flags) installation(cmd *cobra.Command) {
	fs := f.define(cmd, "name", "region", "account", "output-dir", "dry-run", "diff", "issuer-url", "user-tags", "adopt", "tighten",
		"public-key-file", "thumbprint", "create-private-s3-bucket", "ca-file", "connect", "dev")
	f.clientIDs(fs, "openshift", "sts.amazonaws.com")
	f.policy.RegisterForNew(fs)
	required(cmd, "name", "region", "issuer-url")
}

// roles registers the flags of whatever makes a release's roles.
func (f *flags) roles(cmd *cobra.Command) {
	f.trustLength(f.define(cmd, "credentials-requests-dir", "enable-tech-preview", "prune", "keep-permissions", "permissions-boundary-arn"))
	required(cmd, "credentials-requests-dir")
}

func required(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.MarkFlagRequired(flag) // it fails only for a flag that is not registered, which a test would find
	}
}

var accountForm = regexp.MustCompile(`^[0-9]{12}$`)

// check returns an error for flags that are wrong by themselves. ccoctl accepts an empty string for every one of them.
func (f *flags) check(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if err == nil && flag.Value.Type() == "string" && strings.TrimSpace(flag.Value.String()) == "" {
			err = cli.Usagef("--%s is empty", flag.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case f.Account != "" && !accountForm.MatchString(f.Account):
		return cli.Usagef("--account %q is not an account ID of 12 digits", f.Account)
	case f.dryRun && f.diff:
		return cli.Usagef("give --dry-run or --diff, not both")
	case f.requested.Keep && (f.requested.Prune || f.Tighten):
		return cli.Usagef("--keep-permissions takes nothing away, and --prune and --tighten do; run it again with those after the upgrade")
	case cmd.Flags().Changed("max-trust-length") && (f.MaxTrustLength < iampolicy.TrustLength || f.MaxTrustLength > iampolicy.MaxTrustLength):
		return cli.Usagef("--max-trust-length %d: AWS allows %d to %d", f.MaxTrustLength, iampolicy.TrustLength, iampolicy.MaxTrustLength)
	}
	if f.IssuerURL != "" {
		if _, err := keystore.ParseIssuerURL(f.IssuerURL, f.Dev); err != nil {
			return cli.Usage(err)
		}
	}
	return nil
}

// checkOutputDir returns an error unless the directory exists or can be made, one level of it.
func (f *flags) checkOutputDir() error {
	if f.Dir == "" {
		dir, err := os.Getwd()
		f.Dir = dir
		return err
	}
	info, err := os.Stat(f.Dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("--output-dir %s is not a directory", f.Dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(f.Dir))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return cli.WithHint(fmt.Errorf("--output-dir %s cannot be made: there is no directory %s", f.Dir, parent), "mkdir -p %s", f.Dir)
	}
	return nil
}
