package awscmd

import (
	"cmp"
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/webidentity"
)

// hint adds to an error of provision/aws what to do about it, in words of the command line.
func (r *run) hint(err error) error {
	if e, is := errors.AsType[*awsiam.Error](err); is && e.Problem == awsiam.Stranded {
		return cli.WithHint(err, "to move a live cluster: %s; to delete all of %s, roles too, leave --issuer-url out; "+
			"or delete these roles first", cli.Command{"aws", "migrate", "--name", r.Name,
			"--from-issuer-url", r.IssuerURL, "--issuer-url", "NEW", "--kubeconfig", "FILE"}, r.Name)
	} else if is {
		return cli.WithHint(err, "%s", map[awsiam.Problem]string{
			awsiam.NoRegion:     "give --region, or set AWS_REGION",
			awsiam.NotOwned:     "take it over with --adopt, or use another name",
			awsiam.OthersThing:  "use another name: what belongs to another installation is never taken over",
			awsiam.ForeignRoles: "then run it again; or let keypost add it to the roles that nobody owns, with a tag of its own: --adopt",
			awsiam.OthersRoles:  "then run it again",
			awsiam.NeedsPrune:   "once nothing needs what it has now, run it with --prune",
			awsiam.TrustTooLong: "once the account's quota is raised, say so with --max-trust-length",
		}[e.Problem])
	}
	e, is := errors.AsType[*install.Error](err)
	if !is {
		return nil
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.WrongAccount:
		return hint("choose others (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or another --account")
	case install.ForeignProvider:
		return hint("choose other credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or the provider of this account")
	case install.NoRequests:
		return hint("to fill one: oc adm release extract --credentials-requests --cloud=aws --to=DIR; "+
			"for a provider without roles: %s", append(r.createProvider(cmp.Or(r.IssuerURL, "URL")), "--public-key-file", cmp.Or(r.PublicKeyFile, "FILE")))
	case install.ProviderUnread:
		url, _ := api.ProviderURL(e.Provider)
		return hint("to make the provider: %s", r.createProvider(cmp.Or(url, "URL")))
	case install.UnknownAudience:
		return hint("%s", webidentity.Command("add-client-id-to-open-id-connect-provider",
			"--open-id-connect-provider-arn", e.Provider, "--client-id", e.Audience))
	case install.LostAudience:
		return hint("add %s; or, if no pod needs it, take it away first: %s", cli.Quoted("--client-id", e.Audience),
			webidentity.Command("remove-client-id-from-open-id-connect-provider", "--open-id-connect-provider-arn", e.Provider, "--client-id", e.Audience))
	}
	return nil
}

// createProvider returns the command that makes the provider for an issuer URL that a key set has. Words in capitals are to be
// filled in.
func (r *run) createProvider(url string) cli.Command {
	c := cli.Command{"aws", "create-identity-provider", "--name", cmp.Or(r.Name, "NAME"), "--region", cmp.Or(r.Region, "REGION"),
		"--issuer-url", url}
	if r.Account != "" {
		c = append(c, "--account", r.Account)
	}
	if r.Dev {
		c = append(c, "--dev")
	}
	if r.Factory.Store == "" {
		c = append(c, "--store", "STORE")
	}
	return c
}
