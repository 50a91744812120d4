// Package azurecmd has the commands of keypost azure. A command turns its flags into options for provision/azure, and prints the
// events and the result.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/azure.
package azurecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
)

// NewCmdAzure returns the commands of ccoctl azure, with ccoctl's flags, files and log lines, and two of our own.
func NewCmdAzure(f *cli.Factory) *cobra.Command {
	return cloudcmd.Group("azure", "Register an issuer and managed identities with Azure; ccoctl azure, without storage", (&flags{}).all(), common(),
		cloudcmd.NewCmdCreateKeyPair(f), newCmdCreateIssuer(f), newCmdCreateIdentities(f), newCmdCreateAll(f), newCmdDelete(f), newCmdCreateIdentity(f), newCmdMigrate(f))
}

// flags are those of all commands; each command registers those that it has.
type flags struct {
	azure.Options
	cloud              cloudcmd.Flags
	storage, container string
	preserve           bool
	requested          azure.RequestedIdentities
}

// run is one run of a command.
type run struct {
	*cloudcmd.Run
	*flags
	adopts bool // the command has --adopt
}

// command returns a command that takes only flags, which are still to be defined, and that does its work with them.
func (f *flags) command(factory *cli.Factory, c cobra.Command, do func(ctx context.Context, r *run) error) *cobra.Command {
	c.Args, c.RunE = cobra.ExactArgs(0), func(cmd *cobra.Command, _ []string) error {
		begun, err := f.cloud.Begin(factory, cmd, func() error { return f.check(cmd) })
		if err != nil {
			return err
		}
		f.Usual = !cmd.Flags().Changed("audience")
		f.nameGroups(cmd)
		r := &run{begun, f, cmd.Flags().Lookup("adopt") != nil}
		if f.storage != "" || f.container != "" {
			r.Warn("--storage-account-name and --blob-container-name are not needed: keypostd serves the documents, so that there is no storage to keep them in")
		}
		return r.hinted(do(cmd.Context(), r))
	}
	return &c
}

// common are the flags of every command.
func common() []string {
	return []string{"name", "region", "subscription-id", "tenant-id", "cloud", "dev", "output-dir"}
}

// define registers those of the other flags that a command has, by their names.
func (f *flags) define(cmd *cobra.Command, names ...string) *pflag.FlagSet {
	return f.cloud.Take(cmd, f.all(), common(), names...)
}

// all returns every flag. What ccoctl has is spelled as there.
func (f *flags) all() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.cloud.To, f.cloud.Party = &f.Options.Options, "entra"
	f.cloud.Define(all, "only files, without the client IDs that Azure gives")
	all.StringVar(&f.Name, "name", "", "name of what is made: its tag, and the beginning of the identities' names")
	all.StringVar(&f.Region, "region", "", "Azure region of what is made; what deletes or moves needs none")
	all.StringVar(&f.Subscription, "subscription-id", "", "ID of the Azure subscription, the only one in which anything may be changed")
	all.StringVar(&f.Tenant, "tenant-id", "", "ID of the tenant that the subscription must be of")
	all.StringVar(&f.OIDCGroup, "oidc-resource-group-name", "", "resource group of the identities (default NAME-oidc)")
	all.StringVar(&f.InstallGroup, "installation-resource-group-name", "", "resource group that the cluster is installed into (default NAME)")
	all.StringVar(&f.DNSGroup, "dnszone-resource-group-name", "", "resource group of the base domain's DNS zone")
	all.StringVar(&f.NetworkGroup, "network-resource-group-name", "", "resource group of a virtual network that is there already")
	all.StringVar(&f.storage, "storage-account-name", "", "accepted for scripts written for ccoctl; there is no storage account")
	all.StringVar(&f.container, "blob-container-name", "", "accepted for scripts written for ccoctl; there is no container")
	all.StringVar(&f.Cloud, "cloud", arm.PublicCloud, "the Azure cloud; those of governments and of China were never tried")
	all.StringVar(&f.Audience, "audience", azure.DefaultAudience,
		"audience of tokens; a federated credential that is there keeps its own, unless --prune is given too")
	all.StringToStringVar(&f.Tags, "user-tags", nil, "tags for all that is made, as KEY=VALUE,…")
	all.BoolVar(&f.Adopt, "adopt", false, "take over resource groups, identities and roles that are not marked as ours")
	all.BoolVar(&f.Prune, "prune", false, "take away what this run does not ask for: identities, federated credentials, role assignments of ours, and permissions of custom roles")
	all.BoolVar(&f.preserve, "preserve-existing-roles", false, "accepted for scripts written for ccoctl; without --prune no role is taken away")
	all.BoolVar(&f.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of Azure: its URL may have a port, and waits are short")
	all.StringVar(&f.requested.Dir, "credentials-requests-dir", "", "`DIR` with CredentialsRequests (oc adm release extract --credentials-requests)")
	all.BoolVar(&f.requested.TechPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	for _, name := range []string{"storage-account-name", "blob-container-name", "preserve-existing-roles"} {
		all.Lookup(name).Hidden = true
	}
	cli.Choices(all, "cloud", arm.PublicCloud, arm.GovernmentCloud, arm.ChinaCloud)
	cli.Choices(all, "audience", azure.DefaultAudience, "api://AzureADTokenExchange", "api://AzureADTokenExchangeUSGov", "api://AzureADTokenExchangeChina")
	return all
}

// installation registers the flags of whatever publishes a key.
func (f *flags) installation(cmd *cobra.Command, more ...string) {
	f.define(cmd, append([]string{"dry-run", "diff", "issuer-url", "user-tags",
		"adopt", "public-key-file", "oidc-resource-group-name", "storage-account-name", "blob-container-name"}, more...)...)
	cloudcmd.Required(cmd, "name", "region", "subscription-id", "tenant-id", "issuer-url")
}

// identityNames are the flags of whatever makes a release's identities.
func identityNames() []string {
	return []string{"credentials-requests-dir", "enable-tech-preview", "installation-resource-group-name", "dnszone-resource-group-name",
		"network-resource-group-name", "preserve-existing-roles", "prune", "audience"}
}

// adoptedIssuer is what --adopt does, too, where a release's identities are made.
const adoptedIssuer = ", and change the issuer that identities trust"

// adoptedUnknown is what --adopt does, too, where identities are made for an issuer that is published already.
const adoptedUnknown = "; trust an issuer URL that no key set of the store has"

// check returns an error for flags of Azure's that are wrong by themselves.
func (f *flags) check(cmd *cobra.Command) error {
	for _, id := range []struct{ flag, value string }{{"subscription-id", f.Subscription}, {"tenant-id", f.Tenant}} {
		if id.value != "" && !arm.IsGUID(id.value) {
			return cli.Usagef("--%s %q is not an ID: 8-4-4-4-12 hexadecimal digits", id.flag, id.value)
		}
	}
	switch {
	case f.Cloud != arm.PublicCloud && f.Cloud != arm.GovernmentCloud && f.Cloud != arm.ChinaCloud:
		return cli.Usagef("--cloud %q is none of %s, %s and %s", f.Cloud, arm.PublicCloud, arm.GovernmentCloud, arm.ChinaCloud)
	case f.preserve && f.Prune:
		return cli.Usagef("--preserve-existing-roles takes nothing away, and --prune does; give one of them")
	case cmd.Name() == "create-all" || cmd.Name() == "create-managed-identities":
		if err := azure.CheckName(f.Name); err != nil {
			return cli.Usagef("--name %w", err)
		}
	case cmd.Name() == "create-identity":
		if err := azure.CheckIdentityName(f.Name); err != nil {
			return cli.Usagef("--name %w", err)
		}
	}
	return nil
}

// nameGroups chooses the resource groups that a command has a flag for and nobody named.
func (f *flags) nameGroups(cmd *cobra.Command) {
	for _, g := range []struct {
		flag, what, usual string
		to                *string
	}{
		{"oidc-resource-group-name", "OIDC", f.Name + "-oidc", &f.OIDCGroup},
		{"installation-resource-group-name", "installation", f.Name, &f.InstallGroup},
	} {
		if cmd.Flags().Lookup(g.flag) != nil && *g.to == "" {
			*g.to = g.usual
			f.Report(install.Event{Kind: install.Line, Text: fmt.Sprintf("No --%s provided, defaulting %s resource group name to %s", g.flag, g.what, g.usual)})
		}
	}
}
