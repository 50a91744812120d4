package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
)

func (a *app) awsCreateIdentityProvider() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "create-identity-provider --name NAME --region REGION --issuer-url URL",
		Short: "Publish a cluster's key and make the IAM OIDC identity provider",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the IAM\n" +
			"OIDC identity provider. What is there already is compared and brought up to date.",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	f.target(cmd, "AWS region whose IAM endpoint is called")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.provider(fs)
	required(cmd, "region", "issuer-url")
	cmd.RunE = a.awsDo(f, func(ctx context.Context, r *awsRun) error { return r.createIdentityProvider(ctx) })
	return cmd
}

func (r *awsRun) createIdentityProvider(ctx context.Context) error {
	if r.f.publicKeyFile == "" {
		r.f.publicKeyFile = r.f.path(ccoctl.PublicKeyName)
	}
	j, err := r.newJob(ctx, roleSet{})
	if err != nil {
		return err
	}
	return r.run(ctx, j)
}

// site is where the issuer is looked for.
func (f *awsFlags) site() (site, error) {
	if err := checkConnect(f.connect); err != nil {
		return site{}, err
	}
	t := site{url: f.issuerURL, caFile: f.caFile, connect: f.connect, dev: f.dev}
	var err error
	if t.roots, err = readRoots(f.caFile); err != nil || t.connect != "" {
		return t, err
	}
	t.proxy, err = proxyFor(f.issuerURL)
	return t, err
}

// proxyFor is the proxy that the environment names for a URL; nil for none.
func proxyFor(issuer string) (*url.URL, error) {
	req, err := http.NewRequest(http.MethodGet, issuer, http.NoBody)
	if err != nil {
		return nil, err
	}
	p, err := http.ProxyFromEnvironment(req)
	if err != nil {
		return nil, errors.New("HTTPS_PROXY is not the URL of a proxy") // it may have a password in it
	}
	return p, nil
}

// wantedProvider is the IAM OIDC identity provider that the flags ask for.
func (f *awsFlags) wantedProvider() awsiam.Provider {
	return awsiam.Provider{
		URL: f.issuerURL, ClientIDs: f.clientIDs, Thumbprints: f.thumbprints,
		Owner: awsiam.OwnedBy(f.name), Tags: f.tags, Adopt: f.adopt, Tighten: f.tighten, Port: f.dev,
	}
}

// publication is the key set that the flags ask for.
func (f *awsFlags) publication(source string, key keystore.VerificationKey) (publication, error) {
	policy := newPolicy()
	policy.RelyingParties = []string{"aws"}
	policy, err := f.policy.Apply(policy)
	if err == nil {
		err = policy.Check(f.dev)
	}
	if err != nil {
		return publication{}, cli.Usage(err)
	}
	return publication{name: keystore.Name(f.name), url: f.issuerURL, source: source, key: key, policy: policy, dev: f.dev}, nil
}
