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

// Groups of flags. Those that ccoctl has are spelled as there.

func (f *flags) inAccount(cmd *cobra.Command, region string) {
	fs := cmd.Flags()
	fs.StringVar(&f.Name, "name", "", "name of what is made: its tag, and the beginning of the roles' names")
	fs.StringVar(&f.Region, "region", "", region)
	fs.StringVar(&f.Account, "account", "", "ID of the only AWS account in which anything may be changed")
	required(cmd, "name")
}

func (f *flags) files(fs *pflag.FlagSet) {
	fs.StringVar(&f.Dir, "output-dir", "", "directory for the files (default the current one)")
}

func (f *flags) wanted(fs *pflag.FlagSet) {
	fs.StringVar(&f.IssuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	fs.StringArrayVar(&f.ClientIDs, "client-id", []string{"openshift", "sts.amazonaws.com"}, "audience of tokens (repeatable; the whole list)")
	fs.StringToStringVar(&f.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	fs.BoolVar(&f.Adopt, "adopt", false, "take over a provider or role that is not tagged as ours")
	f.diffFlag(fs)
}

func (f *flags) diffFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&f.diff, "diff", false,
		"print what would be changed, and what is there beyond what is wanted; change nothing, and exit 3 if there is any")
}

func (f *flags) tightenFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&f.Tighten, "tighten", false,
		"also take away what is not asked for: client IDs of the provider, other policies of the roles")
}

func (f *flags) trustFlag(fs *pflag.FlagSet) {
	fs.IntVar(&f.MaxTrustLength, "max-trust-length", iampolicy.TrustLength,
		"characters that a trust policy may have, once the account's quota L-C07B4B0D is raised")
}

func (f *flags) localFiles(fs *pflag.FlagSet) {
	fs.BoolVar(&f.dryRun, "dry-run", false, "write files to be applied with the AWS CLI, and call nobody")
}

// installation registers the flags of whatever makes a provider.
func (f *flags) installation(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.inAccount(cmd, "AWS region whose IAM endpoint is called")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	fs.StringVar(&f.publicKeyFile, "public-key-file", "", "file with the cluster's public key (default OUTPUT-DIR/"+ccoctl.PublicKeyName+")")
	f.tightenFlag(fs)
	fs.StringArrayVar(&f.Thumbprints, "thumbprint", nil, "SHA-1 of a CA that AWS does not know, 40 hex digits (repeatable)")
	fs.BoolVar(&f.bucket, "create-private-s3-bucket", false, "accepted for scripts written for ccoctl; there is no bucket")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of the issuer, instead of the system's")
	fs.StringVar(&f.connect, "connect", "", "HOST:PORT at which to look for the issuer instead of the URL's own addresses")
	fs.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of AWS: its URL may have a port, and waits are short")
	f.policy.RegisterMaxAge(fs, "how long a copy of a new issuer's documents is fresh (default 5m)")
	required(cmd, "region", "issuer-url")
}

func (f *flags) roles(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.requested.Dir, "credentials-requests-dir", "",
		"directory with CredentialsRequests (oc adm release extract --credentials-requests)")
	fs.BoolVar(&f.requested.TechPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	fs.BoolVar(&f.requested.Prune, "prune", false, "delete the roles whose CredentialsRequest is gone")
	fs.BoolVar(&f.requested.Keep, "keep-permissions", false, "take no permission away yet: for the run before an upgrade")
	f.boundaryFlag(fs)
	f.trustFlag(fs)
	required(cmd, "credentials-requests-dir")
}

func (f *flags) boundaryFlag(fs *pflag.FlagSet) {
	fs.StringVar(&f.requested.Boundary, "permissions-boundary-arn", "", "ARN of the policy that bounds every role's permissions")
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
