package aws

import (
	"context"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// CreateOptions say which installation to make.
type CreateOptions struct {
	Options                      // with Usual, roles that ask for other audiences keep them
	PublicKey *install.PublicKey // the cluster's; nil for the key pair in Dir, generated if need be
	Stored    bool               // without PublicKey: the keys that are stored under the issuer URL
	Roles     *RequestedRoles    // nil: no roles
}

// Created is an installation.
type Created struct {
	install.Created
	ProviderARN string
	Roles       int
	Secrets     int
}

// Create makes an installation as [install.Run.Create] does: with an IAM OIDC identity provider and roles.
func Create(ctx context.Context, o CreateOptions) (Created, error) {
	c, err := newCreation(o.Options, o.Roles)
	if err != nil {
		return Created{}, err
	}
	made, err := c.Create(ctx, install.CreateOptions{
		PublicKey: o.PublicKey, Stored: o.Stored, Identities: c.all, Notes: c.roles.skipped, Parallel: awsiam.Parallel,
		TrustPlanned: true, // the provider is in every plan
	}, c)
	if err != nil || o.Mode != install.Apply {
		return Created{Created: made}, err
	}
	all := Created{
		Created: made, ProviderARN: c.account.ProviderARN(o.IssuerURL), Roles: len(c.roles.roles), Secrets: len(c.roles.requests),
	}
	if c.all {
		c.Line("%s %s in account %s: key set %s, IAM OIDC identity provider %s, %s, %s", made.Title(), o.Name, c.account.ID, made.KeySet.Name(),
			all.ProviderARN, text.Count(all.Roles, "role", "roles"), text.Count(all.Secrets, "Secret", "Secrets"))
	}
	return all, nil
}

// creation is one run of [Create] or [CreateRoles]. It is the [install.Cloud] of that run.
type creation struct {
	*run
	all   bool // the roles too
	roles roleSet
	trust awsiam.Trust // for CreateRoles: in a provider that exists
}

// newCreation reads the requests for roles; nil are none.
func newCreation(o Options, q *RequestedRoles) (c *creation, err error) {
	c = &creation{run: newRun(o), all: q != nil}
	if q != nil {
		if c.roles, err = readRoles(o, *q); err != nil {
			c.Lines(c.roles.skipped)
		}
	}
	return c, err
}

func (c *creation) Check(keystore.VerificationKey) error {
	if c.trust.ProviderARN != "" {
		return awsiam.Check(awsiam.Provider{}, c.trust, c.roles.roles)
	}
	return awsiam.Check(c.o.provider(), c.o.trust(""), c.roles.roles)
}

func (c *creation) Identify(ctx context.Context) error {
	if err := c.identify(ctx); err != nil || c.trust.ProviderARN == "" {
		return err
	}
	return c.checkProvider(ctx, &c.trust)
}

// Plan plans the provider and the roles.
func (c *creation) Plan(ctx context.Context) (plan.Plan, error) {
	if c.trust.ProviderARN != "" {
		return c.planRoles(ctx, c.roles, c.trust)
	}
	trust := c.o.trust(c.account.ProviderARN(c.IssuerURL))
	p, err := c.client.PlanProvider(ctx, c.account, c.o.provider())
	if err != nil || !c.all {
		return p, err
	}
	roles, err := c.planRoles(ctx, c.roles, trust)
	return p.Then(roles), err
}

func (c *creation) DryRun(d install.Documents) (provider, roles []ccoctl.File) {
	provider = []ccoctl.File{ccoctl.DiscoveryFile(d.Discovery), ccoctl.JWKSFile(d.JWKS), ccoctl.ProviderFile(c.o.provider().CreateJSON())}
	trust := c.trust
	if trust.ProviderARN == "" {
		trust = c.o.trust(c.o.futureProviderARN())
	}
	return provider, c.dryRunFiles(c.roles, trust)
}

func (c *creation) Secrets() []ccoctl.File { return c.secrets(c.roles) }
