// Package azurecmd has the commands of keypost azure. A command turns its flags into options for provision/azure, and prints the
// events and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/azure.
package azurecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
)

// run is what the flags of the commands say, and the run of one of them.
type run struct {
	cloudcmd.Run
	azure.Options
	requested azure.RequestedIdentities

	accounts []string // of a workload
	wanted   azure.WorkloadOptions

	deleteGroup bool
}

// NewCmdAzure returns the commands of ccoctl azure, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdAzure(f *cli.Factory) *cobra.Command {
	r := &run{}
	r.Run = cloudcmd.Run{Factory: f, To: &r.Options.Options, Party: "entra", Ready: r.ready, Hint: r.hint}
	r.define()
	r.Common = []string{"name", "region", "subscription-id", "tenant-id", "cloud", "dev", "output-dir"}
	return r.Group("azure", "Register an issuer and managed identities with Azure; ccoctl azure, without storage",
		r.newCreateIssuer(), r.newCreateIdentities(), r.newCreateAll(), r.newDelete(), r.newCreateIdentity(), r.newMigrate())
}

// define defines every flag. What ccoctl has is spelled as there.
func (r *run) define() {
	r.Define("only files, without the client IDs that Azure gives")
	r.Requests(&r.requested.Dir, &r.requested.TechPreview, &r.Prune,
		"identities, federated credentials, role assignments of ours, and permissions of custom roles")
	all := r.All
	all.StringVar(&r.Name, "name", "", "name of what is made: its tag, and the beginning of the identities' names")
	all.StringVar(&r.Region, "region", "", "Azure region of what is made; what deletes or moves needs none")
	all.StringVar(&r.Subscription, "subscription-id", "", "ID of the Azure subscription, the only one in which anything may be changed")
	all.StringVar(&r.Tenant, "tenant-id", "", "ID of the tenant that the subscription must be of")
	all.StringVar(&r.OIDCGroup, "oidc-resource-group-name", "", "resource group of the identities (default NAME-oidc)")
	all.StringVar(&r.InstallGroup, "installation-resource-group-name", "", "resource group that the cluster is installed into (default NAME)")
	all.StringVar(&r.DNSGroup, "dnszone-resource-group-name", "", "resource group of the base domain's DNS zone")
	all.StringVar(&r.NetworkGroup, "network-resource-group-name", "", "resource group of a virtual network that is there already")
	all.StringVar(&r.Cloud, "cloud", arm.PublicCloud, "the Azure cloud; those of governments and of China were never tried")
	all.StringVar(&r.Audience, "audience", azure.DefaultAudience,
		"audience of tokens; a federated credential that is there keeps its own, unless --prune is given too")
	all.StringToStringVar(&r.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	all.BoolVar(&r.Adopt, "adopt", false, "take over resource groups, identities and roles that are not marked as ours")
	all.StringArrayVar(&r.Drop, "drop-issuer-url", nil, "an old issuer URL: it takes no token of that issuer any more, of whatever service account (repeatable)")
	all.StringVar(&r.OIDCGroup, "resource-group", "", "resource group of the identity; it is made if it is not there")
	all.StringArrayVar(&r.accounts, "service-account", nil, "NAMESPACE/NAME of a service account that may use it (repeatable)")
	all.StringArrayVar(&r.wanted.Roles, "role", nil, "name of a role that is there, to be assigned (repeatable)")
	all.StringArrayVar(&r.wanted.Actions, "permission", nil, "action of a custom role to be made for it (repeatable)")
	all.StringArrayVar(&r.wanted.DataActions, "data-permission", nil, "data action of that custom role (repeatable)")
	all.StringArrayVar(&r.wanted.Scopes, "scope", nil, "ID of a subscription, a resource group or a resource at which roles are assigned (repeatable; default its resource group)")
	all.BoolVar(&r.deleteGroup, "delete-oidc-resource-group", false, "also the resource group of the identities, if it belongs only to this name and has nothing of others in it")
	all.String("storage-account-name", "", "")
	all.String("blob-container-name", "", "")
	r.Needless("storage-account-name", "blob-container-name")
	all.Bool("preserve-existing-roles", false, "")
	all.Lookup("preserve-existing-roles").Hidden = true // without --prune no role is taken away
	cli.Choices(all, "cloud", arm.PublicCloud, arm.GovernmentCloud, arm.ChinaCloud)
	cli.Choices(all, "audience", azure.DefaultAudience, "api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina")
}

// issuerFlags are the flags of whatever publishes a key.
func issuerFlags() []string {
	return []string{"dry-run", "diff", "issuer-url", "user-tags", "public-key-file", "oidc-resource-group-name", "storage-account-name", "blob-container-name"}
}

// identityFlags are the flags of whatever makes a release's identities.
func identityFlags() []string {
	return []string{"credentials-requests-dir", "enable-tech-preview", "installation-resource-group-name", "dnszone-resource-group-name",
		"network-resource-group-name", "preserve-existing-roles", "prune", "audience"}
}

// What --adopt does, too: where a release's identities are made, and where they are made for an issuer that is published already.
const (
	adoptedIssuer  = ", and change the issuer that identities trust"
	adoptedUnknown = "; trust an issuer URL that no key set of the store has"
)

// ready returns an error for flags of Azure's that are wrong by themselves, and makes up what none says.
func (r *run) ready() error {
	r.Usual = !r.Given("audience")
	for _, id := range []struct{ flag, value string }{{"subscription-id", r.Subscription}, {"tenant-id", r.Tenant}} {
		if id.value != "" && !arm.IsGUID(id.value) {
			return cli.Usagef("--%s %q is not an ID: 8-4-4-4-12 hexadecimal digits", id.flag, id.value)
		}
	}
	var err error
	switch r.Verb() {
	case "create-all", "create-managed-identities":
		err = azure.CheckName(r.Name)
	case "create-identity":
		err = azure.CheckIdentityName(r.Name)
	}
	switch {
	case err != nil:
		return cli.Usagef("--name %w", err)
	case r.Cloud != arm.PublicCloud && r.Cloud != arm.GovernmentCloud && r.Cloud != arm.ChinaCloud:
		return cli.Usagef("--cloud %q is none of %s, %s and %s", r.Cloud, arm.PublicCloud, arm.GovernmentCloud, arm.ChinaCloud)
	case r.Given("preserve-existing-roles") && r.Prune:
		return cli.Usagef("--preserve-existing-roles takes nothing away, and --prune does; give one of them")
	}
	r.nameGroup("oidc-resource-group-name", "OIDC", r.Name+"-oidc", &r.OIDCGroup)
	r.nameGroup("installation-resource-group-name", "installation", r.Name, &r.InstallGroup)
	return nil
}

// nameGroup chooses a resource group that a command has a flag for and nobody named.
func (r *run) nameGroup(flag, what, usual string, to *string) {
	if r.Has(flag) && *to == "" {
		*to = usual
		r.Report(install.Event{Kind: install.Line, Text: fmt.Sprintf("No --%s provided, defaulting %s resource group name to %s", flag, what, usual)})
	}
}
