package awscmd

import (
	"cmp"
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/install"
)

// hinted adds to an error of package install what to do about it, in words of the command line.
func (r *run) hinted(err error) error {
	if e, is := errors.AsType[*awsiam.StrandedError](err); is {
		return cli.WithHint(e, "to move a live cluster: %s; to delete all of %s, roles too, leave --issuer-url out; "+
			"to leave the roles without anybody who may assume them, add --force", cli.Command{"aws", "migrate", "--name", r.Name,
			"--from-issuer-url", r.IssuerURL, "--issuer-url", "NEW", "--kubeconfig", "FILE"}, r.Name)
	}
	if e, is := errors.AsType[*awsiam.Error](err); is {
		return cli.WithHint(err, "%s", map[awsiam.Problem]string{
			awsiam.NoRegion:     "give --region, or set AWS_REGION",
			awsiam.NotOwned:     "take it over with --adopt, or use another name",
			awsiam.ForeignRoles: "take over what is yours with --adopt, or see to it by hand",
			awsiam.PolicyMixes:  "run it without --keep-permissions",
			awsiam.TrustTooLong: "once the account's quota is raised, say so with --max-trust-length",
		}[e.Problem])
	}
	e, is := errors.AsType[*install.Error](err)
	if _, hinted := errors.AsType[*cli.HintedError](err); hinted || !is {
		return err
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.WrongAccount:
		return hint("choose others (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or another --account")
	case install.ForeignProvider:
		return hint("choose other credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or the provider of this account")
	case install.NotServed:
		return hint("%s says more; when it is served, run the same command again", cli.Verify(e.KeySet, r.Dev, r.caFile, r.connect))
	case install.HalfKeyPair:
		return hint("if the cluster has the private key, say --public-key-file %s; if not, move the file away", e.File)
	case install.KeyPairMismatch:
		return hint("move away the one that is wrong")
	case install.OtherSigningKey:
		return hint("move it away, or choose another --output-dir")
	case install.NoRequests:
		return hint("oc adm release extract --credentials-requests --cloud=aws --to=DIR fills one; "+
			"for a provider without roles there is %s", r.createProvider(cmp.Or(r.IssuerURL, "URL")))
	case install.ProviderUnread:
		url, _ := awsiam.ProviderURL(e.ProviderARN)
		return hint("%s makes the provider", r.createProvider(cmp.Or(url, "URL")))
	case install.UnknownAudience:
		return hint("aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s", e.ProviderARN, e.Audience)
	}
	return r.publicationHint(err, e)
}

// publicationHint adds what to do about a URL, a name or a key that cannot be published. There is no --force for a key set
// that cannot be read: whoever knows better publishes the URL first.
func (f *flags) publicationHint(err error, e *install.Error) error {
	add := func(name string) cli.Command {
		return cli.Command{"issuer", "add", name, "--url", f.IssuerURL, "--public-key-file", "FILE", "--relying-party", "aws"}
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	switch e.Problem {
	case install.PerhapsTaken:
		return hint("mend that key set; or, if you know that it does not have the URL, publish it first and run this again: %s",
			append(add(f.Name), "--force", "--why", "REASON"))
	case install.Taken:
		return hint("choose another --name or --issuer-url, or publish it yourself: %s", add("NAME"))
	case install.BadName:
		return hint("publish it yourself under another name, and run this again, which finds it by its URL: %s", add("NAME"))
	case install.KeyNeeded:
		return hint("give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair")
	case install.KeyRetired:
		return hint("give the key that the cluster signs with: --public-key-file FILE")
	case install.KeyNotPublished:
		return hint("give the key that the cluster signs with (--public-key-file), or make this one its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.File})
	}
	return err
}

// createProvider returns the command that makes the provider for an issuer URL. Words in capitals are to be filled in.
func (r *run) createProvider(url string) cli.Command {
	name := r.Name
	if r.forRole {
		name = ""
	}
	c := cli.Command{"aws", "create-identity-provider", "--name", cmp.Or(name, "NAME"), "--region", cmp.Or(r.Region, "REGION"),
		"--issuer-url", url, "--public-key-file", cmp.Or(r.publicKeyFile, "FILE")}
	if r.Account != "" {
		c = append(c, "--account", r.Account)
	}
	if r.Dev {
		c = append(c, "--dev")
	}
	if r.Store == "" {
		c = append(c, "--store", "STORE")
	}
	return c
}
