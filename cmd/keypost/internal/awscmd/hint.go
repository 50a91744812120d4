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
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*install.AccountError](err); is {
		return cli.WithHint(err, "choose others (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or another --account")
	}
	if e, is := errors.AsType[*awsiam.StrandedError](err); is {
		return cli.WithHint(e, "to move a live cluster: %s; to delete all of %s, roles too, leave --issuer-url out; "+
			"to leave the roles without anybody who may assume them, add --force", cli.Command{"aws", "migrate", "--name", r.f.name,
			"--from-issuer-url", r.f.issuerURL, "--issuer-url", "NEW", "--kubeconfig", "FILE"}, r.f.name)
	}
	if e, is := errors.AsType[*install.NotServedError](err); is {
		return cli.WithHint(err, "%s says more; when it is served, run the same command again", r.f.look(e.KeySet))
	}
	for _, hint := range []func(error) error{r.keyPairHint, r.publicationHint, r.roleHint} {
		if hint := hint(err); hint != nil {
			return hint
		}
	}
	return err
}

func (r *run) keyPairHint(err error) error {
	if e, is := errors.AsType[*install.HalfKeyPairError](err); is {
		return cli.WithHint(err, "if the cluster has the private key, say --public-key-file %s; if not, move the file away", e.Public)
	}
	if _, is := errors.AsType[*install.KeyPairError](err); is {
		return cli.WithHint(err, "move away the one that is wrong")
	}
	if _, is := errors.AsType[*install.InstalledKeyError](err); is {
		return cli.WithHint(err, "move it away, or choose another --output-dir")
	}
	return nil
}

// publicationHint says what to do about a URL, a name or a key that cannot be published. There is no --force for a key set
// that cannot be read: whoever knows better publishes the URL first.
func (r *run) publicationHint(err error) error {
	add := func(name, url string) cli.Command {
		return cli.Command{"issuer", "add", name, "--url", url, "--public-key-file", "FILE", "--relying-party", "aws"}
	}
	if e, is := errors.AsType[*install.UnreadError](err); is {
		return cli.WithHint(err, "mend that key set; or, if you know that it does not have the URL, publish it first and run this again: %s",
			append(add(string(e.Name), e.URL), "--force", "--why", "REASON"))
	}
	if e, is := errors.AsType[*install.ClaimError](err); is {
		return cli.WithHint(err, "choose another --name or --issuer-url, or publish it yourself: %s", add("NAME", e.URL))
	}
	if e, is := errors.AsType[*install.NameError](err); is {
		return cli.WithHint(err, "publish it yourself under another name, and run this again, which finds it by its URL: %s", add("NAME", e.URL))
	}
	if e, is := errors.AsType[*install.PublishedKeyError](err); is {
		switch {
		case e.Key == "":
			return cli.WithHint(err, "give the public key of the cluster: --public-key-file FILE, or --output-dir with its key pair")
		case e.Retired:
			return cli.WithHint(err, "give the key that the cluster signs with: --public-key-file FILE")
		}
		return cli.WithHint(err, "give the key that the cluster signs with (--public-key-file), or make this one its next: %s",
			cli.Command{"key", "add", string(e.KeySet), "--public-key-file", e.Source})
	}
	return nil
}

func (r *run) roleHint(err error) error {
	provider := func(url string) cli.Command {
		return cli.Command{"aws", "create-identity-provider", "--name", cmp.Or(r.f.name, "NAME"), "--region", cmp.Or(r.f.region, "REGION"), "--issuer-url", url}
	}
	if _, is := errors.AsType[*install.NoRequestsError](err); is {
		return cli.WithHint(err, "oc adm release extract --credentials-requests --cloud=aws --to=DIR fills one; "+
			"for a provider without roles there is %s", provider(cmp.Or(r.f.issuerURL, "URL")))
	}
	if _, is := errors.AsType[*install.ForeignProviderError](err); is {
		return cli.WithHint(err,
			"choose other credentials (AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or the provider of this account")
	}
	if e, is := errors.AsType[*install.ProviderError](err); is {
		return cli.WithHint(err, "%s makes the provider", provider(e.IssuerURL))
	}
	if e, is := errors.AsType[*install.AudienceError](err); is {
		return cli.WithHint(err, "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn %s --client-id %s",
			e.ProviderARN, e.Unknown[0])
	}
	return nil
}
