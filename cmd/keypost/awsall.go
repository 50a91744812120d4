package main

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/plan"
)

func (a *app) awsCreateAll() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "create-all --name NAME --region REGION --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, provider, roles and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make the IAM OIDC identity provider and the roles, and write what the installer takes. It may be\n" +
			"stopped and run again at any point: what is there already is compared and brought up to date.",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	f.target(cmd, "AWS region whose IAM endpoint is called")
	f.files(fs)
	f.localFiles(fs)
	f.wanted(fs)
	f.provider(fs)
	f.roles(cmd)
	required(cmd, "region", "issuer-url")
	cmd.RunE = a.awsDo(f, func(ctx context.Context, r *awsRun) error { return r.createAll(ctx) })
	return cmd
}

// job is what create-all does, and create-identity-provider without keys of its own and roles.
type job struct {
	keys     keyPair
	wanted   publication
	site     site
	provider awsiam.Provider
	roles    roleSet
	set      keystore.KeySet // what is published
	is       bool            // it is in the store
}

func (r *awsRun) createAll(ctx context.Context) error {
	set, err := r.readRoles()
	if err != nil {
		return err
	}
	j, err := r.newJob(ctx, set)
	if err != nil {
		return err
	}
	return r.run(ctx, j)
}

// newJob reads what is on this machine and checks all of it, before the first call and the first write.
func (r *awsRun) newJob(ctx context.Context, set roleSet) (*job, error) {
	keys, err := r.findKeys()
	if err != nil {
		return nil, err
	}
	j := &job{keys: keys, provider: r.f.wantedProvider(), roles: set}
	if err := awsiam.Check(j.provider, r.trust(""), set.roles); err != nil {
		return nil, err
	}
	if r.f.dryRun {
		return j, nil
	}
	if j.wanted, err = r.f.publication(keys.public, keys.key); err != nil {
		return nil, err
	}
	if j.site, err = r.f.site(); err != nil {
		return nil, err
	}
	return j, r.checkStore(ctx, j)
}

func (r *awsRun) trust(providerARN string) awsiam.Trust {
	return awsiam.Trust{ProviderARN: providerARN, Issuer: r.f.issuerURL, Audiences: r.f.clientIDs, Usual: r.f.usual,
		MaxLength: r.f.maxTrust, Port: r.f.dev}
}

// checkStore finds out what the store would say, without making its directory.
func (r *awsRun) checkStore(ctx context.Context, j *job) error {
	if _, err := parsePlace(r.Store); err != nil {
		return err
	}
	st, err := r.openStore(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j.wanted.checkNew()
	case err != nil:
		return err
	}
	j.set, j.is, err = j.wanted.find(ctx, st)
	switch {
	case err != nil:
		return err
	case !j.is:
		return j.wanted.checkNew()
	case r.f.diff && j.keys.missing():
		return nil // the pair is kept elsewhere
	}
	return j.wanted.checkKey(j.set)
}

func (r *awsRun) run(ctx context.Context, j *job) error {
	if !r.f.dryRun {
		if err := r.identify(ctx); err != nil {
			return err
		}
	}
	r.logSkipped(j.roles)
	if r.f.bucket {
		r.warn("--create-private-s3-bucket is not needed: keypostd serves the documents, so that there is no bucket to keep private")
	}
	if r.f.dryRun {
		return r.dryRunAll(j)
	}
	if r.f.diff {
		return r.diffAll(ctx, j)
	}
	for _, step := range []func(context.Context, *job) error{r.preflight, r.makeKeys, r.publishKeys, r.register, r.handOver} {
		if err := step(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// diffAll plans against what is there now; what is not published yet is part of it.
func (r *awsRun) diffAll(ctx context.Context, j *job) error {
	account, err := r.planAccount(ctx, j)
	if err != nil {
		return err
	}
	return r.show(account.Preview().After(j.localChanges()...))
}

// planAccount leads to the provider and the roles. Now that the account is known, ARNs are held against it.
func (r *awsRun) planAccount(ctx context.Context, j *job) (plan.Plan, error) {
	trust := r.trust(r.account.ProviderARN(r.f.issuerURL))
	if err := awsiam.Check(j.provider, trust, j.roles.roles); err != nil {
		return plan.Plan{}, err
	}
	plan, err := r.client.PlanProvider(ctx, r.account, j.provider)
	if err != nil || r.f.requestsDir == "" {
		return plan, err
	}
	roles, err := r.planRoles(ctx, j.roles, trust)
	return plan.Then(roles), err
}

// preflight finds out before a new key set is published, and a wait of minutes, whether AWS has anything against it.
func (r *awsRun) preflight(ctx context.Context, j *job) error {
	if j.is {
		return nil
	}
	_, err := r.planAccount(ctx, j)
	return err
}

// localChanges are those that create-all makes before it calls AWS.
func (j *job) localChanges() []plan.Change {
	if j.is {
		return nil
	}
	var changes []plan.Change
	if j.keys.missing() {
		changes = append(changes, plan.Change{Verb: plan.Create, Thing: "key pair", Name: j.keys.private})
	}
	return append(changes, plan.Change{Verb: plan.Create, Thing: "key set", Name: string(j.wanted.name), Diff: []string{"+ " + j.wanted.url}})
}

func (r *awsRun) makeKeys(_ context.Context, j *job) error {
	if err := r.makeKeyPair(&j.keys); err != nil {
		return err
	}
	j.wanted.key = j.keys.key
	return nil
}

func (r *awsRun) publishKeys(ctx context.Context, j *job) error {
	set, made, err := r.publish(ctx, j.wanted)
	if err != nil {
		return err
	}
	j.set = set
	if made {
		r.journal.printf("Key set %s stored in %s", set.Name(), r.Store)
	}
	if k, _ := set.Key(j.wanted.key.ID()); k.State == keystore.Next {
		r.warn("key %s is next in key set %q: the cluster may sign with it only once it is active (%s)", k.ID(), set.Name(),
			command{"key", "promote", string(set.Name()), string(k.ID())})
	}
	if addresses, err := j.site.addresses(ctx); err == nil && !set.Dev() {
		if inside := hidden(addresses); len(inside) > 0 {
			r.warn("%s leads to %s here; AWS must reach it on the public internet", r.f.issuerURL, strings.Join(inside, ", "))
		}
	}
	return j.site.awaitServed(ctx, r.journal, set, j.wanted.key)
}

// register makes the provider first: a role that trusts what is not there works for nobody.
func (r *awsRun) register(ctx context.Context, j *job) error {
	plan, err := r.planAccount(ctx, j)
	if err != nil {
		return err
	}
	return r.settle(ctx, plan)
}

// handOver gives the installer what it takes, and says what there is now and what comes next.
func (r *awsRun) handOver(_ context.Context, j *job) error {
	if r.f.requestsDir != "" {
		if err := r.writeSecrets(j.roles); err != nil {
			return err
		}
	}
	if err := r.writeAuthentication(); err != nil || r.f.requestsDir == "" {
		return err
	}
	if err := r.copySigningKey(j.keys); err != nil {
		return err
	}
	r.journal.printf("Made for %s in account %s: key set %s, IAM OIDC identity provider %s, %s, %s", r.f.name, r.account.ID, j.set.Name(),
		r.account.ProviderARN(r.f.issuerURL), plural(len(j.roles.roles), "role", "roles"), plural(len(j.roles.requests), "Secret", "Secrets"))
	r.notice("next, with the directory that openshift-install create manifests has filled:")
	r.notice("  cp %s/* INSTALL-DIR/%s/", r.f.path(ccoctl.ManifestsDir), ccoctl.ManifestsDir)
	if j.keys.private == "" {
		r.notice("  and put the signing key of %s into INSTALL-DIR/%s", j.keys.public, ccoctl.SigningKeyName)
	} else {
		r.notice("  cp -a %s INSTALL-DIR/", r.f.path(ccoctl.TLSDir))
	}
	r.notice("then openshift-install create cluster; and once it signs tokens:")
	r.notice("  %s", j.site.look(j.set))
	return nil
}
