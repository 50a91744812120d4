// Package gcpcmd has the commands of keypost gcp. A command turns its flags into options for provision/gcp, and prints the events
// and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/gcp.
package gcpcmd

import (
	"context"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// NewCmdGCP returns the commands of ccoctl gcp, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdGCP(f *cli.Factory) *cobra.Command {
	return cloudcmd.Group("gcp", "Register an issuer and service accounts with Google Cloud; ccoctl gcp, without a bucket", (&flags{}).all(), common(),
		cloudcmd.NewCmdCreateKeyPair(f), newCmdCreatePool(f), newCmdCreateProvider(f), newCmdCreateAccounts(f), newCmdCreateAll(f), newCmdDelete(f),
		newCmdCreateAccount(f), newCmdMigrate(f))
}

// flags are those of all commands; each command registers those that it has.
type flags struct {
	gcp.Options
	cloud     cloudcmd.Flags
	region    string
	dryReads  bool // --dry-run asks Google, and writes no scripts
	storage   string
	requested gcp.RequestedAccounts
}

// The places of keys that ccoctl knows. There is no bucket: Google fetches the keys where keypostd serves them.
const (
	publicBucket = "public-bucket"
	poolJWKFile  = "pool-jwk-file"
)

// command returns a command that takes only flags, which are still to be defined, and that does its work with them.
func (f *flags) command(factory *cli.Factory, c cobra.Command, do func(ctx context.Context, r *run) error) *cobra.Command {
	c.Args, c.RunE = cobra.ExactArgs(0), func(cmd *cobra.Command, _ []string) error {
		begun, err := f.cloud.Begin(factory, cmd, func() error { return f.check(cmd) })
		if err != nil {
			return err
		}
		f.KeepAudiences, f.Upload = !f.requested.Prune || !cmd.Flags().Changed("allowed-audience"), f.storage == poolJWKFile
		f.UsualKeys = !cmd.Flags().Changed("key-storage-method")
		r := &run{Run: begun, flags: f, adopts: cmd.Flags().Lookup("adopt") != nil}
		if f.Upload {
			f.cloud.Copy = r.newCopy()
		}
		if f.region != "" {
			r.Warn("--region %s is not needed: keypostd serves the documents, so that there is no bucket to put anywhere", f.region)
		}
		return r.hinted(do(cmd.Context(), r))
	}
	return &c
}

// common are the flags of every command.
func common() []string { return []string{"project", "dev", "output-dir"} }

// define registers those of the other flags that a command has, by their names.
func (f *flags) define(cmd *cobra.Command, names ...string) *pflag.FlagSet {
	return f.cloud.Take(cmd, f.all(), common(), names...)
}

// all returns every flag. What ccoctl has is spelled as there.
func (f *flags) all() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.cloud.To, f.cloud.Party = &f.Options.Options, "gcp"
	f.cloud.Define(all, "files to be applied with curl and gcloud")
	all.StringVar(&f.Name, "name", "", "name of what is made: the ID of pool and provider, and the beginning of the accounts' names")
	all.StringVar(&f.Project, "project", "", "ID or number of the Google Cloud project, the only one in which anything may be changed")
	all.StringVar(&f.region, "region", "", "accepted for scripts written for ccoctl; there is no bucket")
	all.StringVar(&f.PoolID, "workload-identity-pool", "", "ID of the workload identity pool")
	all.StringVar(&f.ProviderID, "workload-identity-provider", "", "ID of the provider in the pool")
	all.StringVar(&f.storage, "key-storage-method", publicBucket,
		"how Google gets the keys: "+publicBucket+" (it fetches them from the issuer URL) or "+poolJWKFile+" (it is given a copy)")
	all.StringArrayVar(&f.Audiences, "allowed-audience", []string{"openshift"},
		"audience of tokens that the provider takes (repeatable); what a provider that is there takes beside it stays, unless --prune is given")
	all.StringVar(&f.Condition, "attribute-condition", "", "CEL expression that a token must fulfil; without it that of a provider that is there stays, another takes its place with --adopt, and true lets every token in")
	all.BoolVar(&f.Adopt, "adopt", false, "take over what neither keypost nor ccoctl made")
	all.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev: its URL may have a port, and waits are short")
	all.StringVar(&f.requested.Dir, "credentials-requests-dir", "", "`DIR` with CredentialsRequests (oc adm release extract --credentials-requests)")
	all.BoolVar(&f.requested.TechPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	all.BoolVar(&f.requested.Prune, "prune", false,
		"take away what no CredentialsRequest asks for: service accounts, their users and roles, permissions of custom roles")
	all.Lookup("region").Hidden = true
	cli.Choices(all, "key-storage-method", publicBucket, poolJWKFile)
	cli.Choices(all, "allowed-audience", "openshift", "sts.googleapis.com")
	return all
}

// installation registers the flags of whatever publishes a key and makes a provider.
func (f *flags) installation(cmd *cobra.Command, more ...string) {
	f.define(cmd, append([]string{"name", "region", "dry-run", "diff", "issuer-url", "adopt", "public-key-file",
		"key-storage-method", "allowed-audience", "attribute-condition"}, more...)...)
	cmd.Flags().Lookup("adopt").Usage += ", change the issuer that a provider trusts or the attribute condition that it has, replace a copy of other keys, " +
		"and write over the manifests of another issuer in --output-dir"
	cloudcmd.Required(cmd, "name", "project", "issuer-url")
}

// projectForm admits IDs, also those of old projects in a domain, and numbers
// (https://cloud.google.com/resource-manager/docs/creating-managing-projects).
var (
	projectForm   = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$|^[0-9]{6,19}$`)
	projectNumber = regexp.MustCompile(`^[0-9]+$`)
)

// check returns an error for flags of Google Cloud's that are wrong by themselves.
func (f *flags) check(cmd *cobra.Command) error {
	accounts := cmd.Name() == "create-service-accounts"
	pool := !accounts && cmd.Name() != "create-service-account" && (cmd.Name() != "migrate" || f.PoolID == "")
	if err := iam.CheckName(f.Name, pool, accounts || cmd.Name() == "create-all"); err != nil {
		return cli.Usagef("--name %w", err)
	}
	for _, id := range []struct{ flag, value string }{{"workload-identity-pool", f.PoolID}, {"workload-identity-provider", f.ProviderID}} {
		if flag := cmd.Flags().Lookup(id.flag); flag == nil || !flag.Changed {
			continue
		}
		if err := federation.CheckPoolID(strings.ReplaceAll(id.flag, "-", " "), id.value); err != nil {
			return cli.Usage(err)
		}
	}
	switch {
	case f.Project != "" && !projectForm.MatchString(f.Project):
		return cli.Usagef("--project %q is neither the ID of a project nor its number", f.Project)
	case f.cloud.DryRun && !f.dryReads && projectNumber.MatchString(f.Project):
		return cli.Usagef("--project %s is a number: --dry-run calls nobody, and needs the project's ID", f.Project)
	case f.storage != "" && f.storage != publicBucket && f.storage != poolJWKFile:
		return cli.Usagef("--key-storage-method %q is neither %s nor %s", f.storage, publicBucket, poolJWKFile)
	}
	for _, a := range f.Audiences {
		if a == "" {
			return cli.Usagef("--allowed-audience is empty")
		}
	}
	return nil
}
