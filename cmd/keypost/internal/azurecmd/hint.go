package azurecmd

import (
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/azure/arm"
)

// hint adds to an error of provision/azure what to do about it, in words of the command line.
func (r *run) hint(err error) error {
	e, is := errors.AsType[*arm.Error](err)
	if !is {
		return nil
	}
	const otherPlace = "choose other credentials, or another --subscription-id or --tenant-id"
	notOwned := "take it over with --adopt, or use another name"
	if !r.Has("adopt") {
		notOwned = "it stays: leave --delete-oidc-resource-group out; or name another group or installation with --oidc-resource-group-name " +
			"or --name"
	}
	var args []any
	switch e.Problem {
	case arm.OtherIssuer:
		args = []any{cli.Command{"azure", "migrate", "--name", r.Name, "--subscription-id", r.Subscription,
			"--from-issuer-url", "OLD", "--issuer-url", r.IssuerURL}}
	case arm.Unregistered:
		args = []any{cli.Quoted(r.Subscription)}
	case arm.UnknownIssuer:
		args = []any{cli.Command{"issuer", "list"}}
	}
	return cli.WithHint(err, map[arm.Problem]string{
		arm.NoCredentials:  "az login; or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
		arm.NoSubscription: otherPlace,
		arm.Disallowed:     "where the policy asks for tags, give them: --user-tags KEY=VALUE,…",
		arm.Unregistered:   "az provider register --namespace Microsoft.ManagedIdentity --subscription %s --wait",
		arm.WrongTenant:    otherPlace,
		arm.NotOwned:       notOwned,
		arm.OtherIssuer: "for another cluster use another --name; once nothing needs the old issuer, --adopt changes it " +
			"(with --diff it shows what); what moves a cluster and takes no access away: %s",
		arm.WrongAlgorithm: "let the cluster sign with an RSA key",
		arm.NameTaken:      "choose another --name; or, if that role was deleted a moment ago, run this again",
		arm.OtherGroup: "name the resource group that the identities were made in: --oidc-resource-group-name GROUP; what shows the " +
			"assignments of a role whose identity is gone: az role assignment list --all --role NAME",
		arm.OthersInGroup: "leave --delete-oidc-resource-group out",
		arm.UnknownIssuer: "see the issuer URLs that there are: %s; where another store publishes it, give that one as --store, or none; " +
			"--adopt trusts it all the same",
	}[e.Problem], args...)
}
