// Package gcpcmd has the commands of keypost gcp. A command turns its flags into options for provision/gcp, and prints the events
// and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/gcp.
package gcpcmd

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
)

// run is what the flags of the commands say, and the run of one of them.
type run struct {
	cloudcmd.Run
	gcp.Options
	storage   string
	requested gcp.RequestedAccounts

	accountID       string // of a workload
	accounts, roles []string

	from        string // ID of a provider that is moved from
	customRoles bool
}

// NewCmdGCP returns the commands of ccoctl gcp, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdGCP(f *cli.Factory) *cobra.Command {
	r := &run{}
	r.Run = cloudcmd.Run{Factory: f, To: &r.Options.Options, Party: "gcp", Ready: r.ready, Hint: r.hint}
	r.define()
	r.Common = []string{"project", "dev", "output-dir"}
	return r.Group("gcp", "Register an issuer and service accounts with Google Cloud; ccoctl gcp, without a bucket",
		r.newCreatePool(), r.newCreateProvider(), r.newCreateAccounts(), r.newCreateAll(), r.newDelete(), r.newCreateAccount(), r.newMigrate())
}

// The places of keys that ccoctl knows. There is no bucket: Google fetches the keys where keypostd serves them.
const (
	publicBucket = "public-bucket"
	poolJWKFile  = "pool-jwk-file"
)

// define defines every flag. What ccoctl has is spelled as there.
func (r *run) define() {
	r.Define("files to be applied with curl and gcloud")
	r.Requests(&r.requested.Dir, &r.requested.TechPreview, &r.requested.Prune, "service accounts, their users and roles, permissions of custom roles")
	all := r.All
	all.StringVar(&r.Name, "name", "", "name of what is made: the ID of pool and provider, and the beginning of the accounts' names")
	all.StringVar(&r.Project, "project", "", "ID or number of the Google Cloud project, the only one in which anything may be changed")
	all.StringVar(&r.PoolID, "workload-identity-pool", "", "ID of the workload identity pool")
	all.StringVar(&r.ProviderID, "workload-identity-provider", "", "ID of the provider in the pool")
	all.StringVar(&r.storage, "key-storage-method", publicBucket,
		"how Google gets the keys: "+publicBucket+" (it fetches them from the issuer URL) or "+poolJWKFile+" (it is given a copy)")
	all.StringArrayVar(&r.Audiences, "allowed-audience", []string{"openshift"},
		"audience of tokens that the provider takes (repeatable); what a provider that is there takes beside it stays, unless --prune is given")
	all.StringVar(&r.Condition, "attribute-condition", "", "CEL expression that a token must fulfil; without it that of a provider that is there stays, another takes its place with --adopt, and true lets every token in")
	all.BoolVar(&r.Adopt, "adopt", false, "take over what neither keypost nor ccoctl made")
	all.StringVar(&r.accountID, "account-id", "", "ID of the Google service account, before the @")
	all.StringArrayVar(&r.accounts, "service-account", nil, "NAMESPACE/NAME of a Kubernetes service account that may impersonate it (repeatable)")
	all.StringArrayVar(&r.roles, "role", nil, "role that it gets in the project, as roles/NAME (repeatable)")
	all.StringVar(&r.from, "from-workload-identity-provider", "", "ID of OLD's provider (default NAME)")
	all.BoolVar(&r.customRoles, "force-delete-custom-roles", false,
		"also the custom roles that no other account of the project has now; other clusters may need them later")
	all.String("region", "", "")
	r.Needless("region")
	cli.Choices(all, "key-storage-method", publicBucket, poolJWKFile)
	cli.Choices(all, "allowed-audience", "openshift", "sts.googleapis.com")
}

// projectForm admits IDs, also those of old projects in a domain, and numbers
// (https://cloud.google.com/resource-manager/docs/creating-managing-projects).
var (
	projectForm   = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$|^[0-9]{6,19}$`)
	projectNumber = regexp.MustCompile(`^[0-9]+$`)
)

// ready returns an error for flags of Google Cloud's that are wrong by themselves, and makes up what none says.
func (r *run) ready() error {
	r.KeepAudiences, r.Upload = !r.requested.Prune || !r.Given("allowed-audience"), r.storage == poolJWKFile
	r.UsualKeys = !r.Given("key-storage-method")
	r.Name = cmp.Or(r.Name, r.accountID)
	if r.Upload {
		r.Copy = r.newCopy()
	}
	accounts := r.Verb() == "create-service-accounts"
	pool := !accounts && r.Verb() != "create-service-account" && (r.Verb() != "migrate" || r.PoolID == "")
	if err := iam.CheckName(r.Name, pool, accounts || r.Verb() == "create-all"); err != nil {
		return cli.Usagef("--name %w", err)
	}
	for _, id := range []struct{ flag, value string }{{"workload-identity-pool", r.PoolID}, {"workload-identity-provider", r.ProviderID}} {
		if !r.Given(id.flag) {
			continue
		}
		if err := federation.CheckPoolID(strings.ReplaceAll(id.flag, "-", " "), id.value); err != nil {
			return cli.Usage(err)
		}
	}
	switch {
	case r.Project != "" && !projectForm.MatchString(r.Project):
		return cli.Usagef("--project %q is neither the ID of a project nor its number", r.Project)
	case r.DryRun && r.Verb() != "delete" && projectNumber.MatchString(r.Project):
		return cli.Usagef("--project %s is a number: --dry-run calls nobody, and needs the project's ID", r.Project)
	case r.storage != publicBucket && r.storage != poolJWKFile:
		return cli.Usagef("--key-storage-method %q is neither %s nor %s", r.storage, publicBucket, poolJWKFile)
	case slices.Contains(r.Audiences, ""):
		return cli.Usagef("--allowed-audience is empty")
	}
	return nil
}
