package gcpcmd

import (
	"cmp"
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
)

// hinted adds to an error of provision/gcp what to do about it, in words of the command line.
func (r *run) hinted(err error) error {
	if _, hinted := errors.AsType[*cli.HintedError](err); hinted {
		return err
	}
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	if e, is := errors.AsType[*iam.Error](err); is {
		switch e.Problem {
		case iam.NoCredentials:
			return hint("set GOOGLE_CREDENTIALS to the key file of a service account, or: gcloud auth application-default login")
		case iam.WrongProject:
			return hint("choose other credentials (GOOGLE_CREDENTIALS), or another --project")
		case iam.NotOwned:
			if !r.adopts { // delete; migrate has hints of its own
				return hint("once nobody needs that provider, delete it, and run this again: gcloud iam workload-identity-pools providers delete PROVIDER --location global "+
					"--workload-identity-pool %s --project %s", cli.Quoted(r.Name), cli.Quoted(r.Project))
			}
			return hint("take it over with --adopt, or use another name")
		case iam.OtherIssuer:
			return hint("for another cluster use another --name; once nothing needs the old issuer, --adopt changes it; a live cluster is moved by %s",
				cli.Command{"gcp", "migrate", "--name", r.Name, "--project", r.Project, "--from-issuer-url", "OLD", "--issuer-url", r.IssuerURL,
					"--credentials-requests-dir", cmp.Or(r.requested.Dir, "DIR")})
		case iam.UnknownCopy:
			if r.Observations == "" {
				return hint("say where gcp sync-keys records (--observations URL); without such a place, and if this store is the newest: --adopt")
			}
			return hint("is it this store that has the newest keys of %s (--store)? If so: --adopt", r.IssuerURL)
		case iam.PoolUnusable:
			return hint("which pools there are: gcloud iam workload-identity-pools list --location global --project %s; to make this one or bring it back: %s", cli.Quoted(r.Project), cli.Command{"gcp", "create-workload-identity-pool", "--name", r.PoolID, "--project", r.Project})
		}
		return err
	}
	e, is := errors.AsType[*install.Error](err)
	if !is {
		return err
	}
	switch e.Problem {
	case install.NoRequests:
		return hint("to fill one: oc adm release extract --credentials-requests --cloud=gcp --to=DIR")
	case install.ProviderUnread:
		return hint("to make the provider: %s", cli.Command{"gcp", "create-workload-identity-provider", "--name", r.ProviderID,
			"--project", r.Project, "--workload-identity-pool", r.PoolID, "--issuer-url", cmp.Or(r.IssuerURL, "URL")})
	case install.OnlyCopies:
		return hint("have Google hold a copy: --key-storage-method %s", poolJWKFile)
	case install.ForeignProvider:
		return hint("choose the pool and the provider of this cluster, or leave --issuer-url out")
	}
	return r.cloud.Hinted(err)
}
