package gcpcmd

import (
	"cmp"
	"errors"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
)

// hint adds to an error of provision/gcp what to do about it, in words of the command line.
func (r *run) hint(err error) error {
	hint := func(format string, args ...any) error { return cli.WithHint(err, format, args...) }
	if e, is := errors.AsType[*rest.Error](err); is {
		switch e.Problem {
		case rest.NoCredentials:
			return hint("set GOOGLE_CREDENTIALS to the key file of a service account, or: gcloud auth application-default login")
		case rest.WrongProject:
			return hint("choose other credentials (GOOGLE_CREDENTIALS), or another --project")
		case rest.NotOwned:
			if !r.Has("adopt") { // delete; migrate has hints of its own
				return hint("once nobody needs that provider, delete it, and run this again: gcloud iam workload-identity-pools providers delete PROVIDER --location global "+
					"--workload-identity-pool %s --project %s", cli.Quoted(r.Name), cli.Quoted(r.Project))
			}
			return hint("take it over with --adopt, or use another name")
		case rest.OtherIssuer:
			return hint("for another cluster use another --name; once nothing needs the old issuer, --adopt changes it; a live cluster is moved by %s",
				cli.Command{"gcp", "migrate", "--name", r.Name, "--project", r.Project, "--from-issuer-url", "OLD", "--issuer-url", r.IssuerURL,
					"--credentials-requests-dir", cmp.Or(r.requested.Dir, "DIR")})
		case rest.OtherCopy:
			return hint("bring it up to date, and run this again: %s; if nothing lives by those keys, --adopt replaces them", cli.Command{"sync-keys", r.IssuerURL})
		case rest.PoolUnusable:
			return hint("which pools there are: gcloud iam workload-identity-pools list --location global --project %s; to make this one or bring it back: %s", cli.Quoted(r.Project), cli.Command{"gcp", "create-workload-identity-pool", "--name", r.PoolID, "--project", r.Project})
		}
		return nil
	}
	e, is := errors.AsType[*install.Error](err)
	if !is {
		return nil
	}
	switch e.Problem {
	case install.ProviderUnread:
		id, name := federation.ProviderID{Project: r.Project, Pool: r.PoolID, Provider: r.ProviderID}, r.Name
		if r.requested.Dir == "" { // of create-service-account, whose name is the account's
			name = r.PoolID
		}
		return hint("to make the provider, or bring it back (with --key-storage-method pool-jwk-file if it is to have a copy of the keys): %s",
			makingProvider(name, id, cmp.Or(r.IssuerURL, "URL"), false))
	case install.OnlyCopies:
		return hint("have Google hold a copy: --key-storage-method %s", poolJWKFile)
	case install.ForeignProvider:
		return hint("choose the pool and the provider of this cluster, or leave --issuer-url out")
	}
	return nil
}

// makingProvider returns the command that makes a provider of an installation, brings it back or enables it, with a copy of the keys or
// without. The directory is one of its own: another may have the manifests of another issuer.
func makingProvider(installation string, id federation.ProviderID, issuerURL string, uploaded bool) cli.Command {
	c := cli.Command{"gcp", "create-workload-identity-provider", "--name", installation, "--project", id.Project, "--workload-identity-pool", id.Pool}
	if id.Provider != installation {
		c = append(c, "--workload-identity-provider", id.Provider)
	}
	c = append(c, "--issuer-url", issuerURL)
	if uploaded {
		c = append(c, "--key-storage-method", poolJWKFile)
	}
	return append(c, "--output-dir", id.Provider)
}
