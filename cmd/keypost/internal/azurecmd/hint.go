package azurecmd

import (
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
)

// hinted adds to an error of provision/azure what to do about it, in words of the command line.
func (r *run) hinted(err error) error {
	if _, hinted := errors.AsType[*cli.HintedError](err); hinted {
		return err
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	const otherPlace = "choose other credentials, or another --subscription-id or --tenant-id"
	if e, is := errors.AsType[*arm.Error](err); is {
		switch e.Problem {
		case arm.NoCredentials:
			return hint("az login; or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET")
		case arm.NoSubscription:
			return hint(otherPlace)
		case arm.Disallowed:
			return hint("where the policy asks for tags, give them: --user-tags KEY=VALUE,…")
		case arm.Unregistered:
			return hint("az provider register --namespace Microsoft.ManagedIdentity --subscription %s --wait", cli.Quoted(r.Subscription))
		}
		return err
	}
	if e, is := errors.AsType[*iam.Error](err); is {
		switch e.Problem {
		case iam.WrongTenant:
			return hint(otherPlace)
		case iam.NotOwned:
			if !r.adopts {
				return hint("it stays: leave --delete-oidc-resource-group out; or name another group or installation with --oidc-resource-group-name or --name")
			}
			return hint("take it over with --adopt, or use another name")
		case iam.OtherIssuer:
			return hint("for another cluster use another --name; once nothing needs the old issuer, --adopt changes it (--diff shows what); "+
				"what moves a cluster and takes no access away: %s", cli.Command{"azure", "migrate", "--name", r.Name,
				"--subscription-id", r.Subscription, "--from-issuer-url", "OLD", "--issuer-url", r.IssuerURL})
		case iam.WrongAlgorithm:
			return hint("let the cluster sign with an RSA key")
		case iam.NameTaken:
			return hint("choose another --name; or, if that role was deleted a moment ago, run this again")
		case iam.OtherGroup:
			return hint("name the resource group that the identities were made in: --oidc-resource-group-name GROUP; what shows the " +
				"assignments of a role whose identity is gone: az role assignment list --all --role NAME")
		case iam.UnknownIssuer:
			return hint("see the issuer URLs that there are: %s; where another store publishes it, give that one as --store, or none; --adopt trusts it all the same",
				cli.Command{"issuer", "list"})
		case iam.OthersInGroup:
			return hint("leave --delete-oidc-resource-group out")
		}
		return err
	}
	if e, is := errors.AsType[*install.Error](err); is && e.Problem == install.NoRequests {
		return hint("to fill one: oc adm release extract --credentials-requests --cloud=azure --to=DIR")
	}
	return r.cloud.Hinted(err)
}
