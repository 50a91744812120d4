package azure

import (
	"context"
	"errors"
	"io/fs"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// CreateOptions say which installation to make.
type CreateOptions struct {
	Options
	PublicKey  *install.PublicKey   // the cluster's; nil for the key pair in Dir, generated if need be
	Stored     bool                 // without PublicKey: the keys that are stored under the issuer URL
	Identities *RequestedIdentities // nil: none, and only the resource group of the identities
}

// Created is an installation.
type Created struct {
	install.Created
	Tenant     string
	Identities int
	Secrets    int
}

// Create makes an installation as [install.Run.Create] does: with resource groups, identities and roles.
func Create(ctx context.Context, o CreateOptions) (Created, error) {
	c, err := newCreation(o.Options, o.Identities)
	if err != nil {
		return Created{}, err
	}
	made, err := c.Create(ctx, install.CreateOptions{
		PublicKey: o.PublicKey, Stored: o.Stored, Identities: c.wanted, Notes: c.set.skipped, Parallel: iam.Parallel,
		TrustPlanned: c.wanted,
	}, c)
	if err != nil || o.Mode != install.Apply {
		return Created{Created: made, Tenant: c.tenant}, err
	}
	if !c.wanted { // else this file is written with the Secrets
		if err := c.WriteFiles(ccoctl.AzureWebhookFile(c.tenantID())); err != nil {
			return Created{}, err
		}
	}
	all := Created{Created: made, Tenant: c.tenantID(), Identities: len(c.set.identities), Secrets: len(c.set.requests)}
	if c.wanted {
		c.Line("%s %s in subscription %s: key set %s, %s, %s", made.Title(), o.Name, o.Subscription, made.KeySet.Name(),
			text.Count(all.Identities, "managed identity", "managed identities"), text.Count(all.Secrets, "Secret", "Secrets"))
	}
	return all, nil
}

// creation is one run of [Create] or [CreateIdentities]. It is the [install.Cloud] of that run.
type creation struct {
	*run
	set       identitySet
	wanted    bool // there are to be identities
	published bool // the issuer is, so that nothing else is made
	allNew    bool // none of the identities is there by the last plan
}

// newCreation reads the requests for identities; nil are none.
func newCreation(o Options, q *RequestedIdentities) (c *creation, err error) {
	c = &creation{run: newRun(o), wanted: q != nil}
	if q != nil {
		if c.set, err = readIdentities(o, *q); err != nil {
			c.Lines(c.set.skipped)
		}
	}
	return c, err
}

func (c *creation) Check(key keystore.VerificationKey) error {
	return errors.Join(check(c.O, c.set.identities), checkKey(key))
}

// checkIssuer looks, before anybody is called, for the key set of an issuer that is published already, and checks that Entra can read
// its keys, and takes them.
func (r *run) checkIssuer(ctx context.Context) error {
	if r.Store.Open == nil {
		r.Warn("the algorithm of the cluster's keys was not checked, as no store was given (--store): Entra takes only tokens signed with RS256")
		return nil
	}
	stored, err := r.ReadStore(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set, published := stored.InUse(r.IssuerURL)
	if !published { // Azure takes any URL, and anyone who gets one that was mistyped would be trusted
		err := arm.Refuse(arm.UnknownIssuer, "no key set of %s has the issuer URL %s, which the identities are to trust: see that it is spelled right, and whose it is",
			r.Store.Name, r.IssuerURL)
		if !r.O.Adopt {
			return err
		}
		r.Warn("%v", err)
	}
	if err := install.CheckReadable(set, r.IssuerURL); err != nil {
		return err
	}
	for _, k := range set.Keys() {
		if k.State == keystore.Retired {
			continue
		}
		if err := checkKey(k.VerificationKey); err != nil {
			return err
		}
	}
	return nil
}

func (c *creation) Identify(ctx context.Context) error {
	if c.published {
		if err := c.checkIssuer(ctx); err != nil {
			return err
		}
	}
	if err := c.identify(ctx); err != nil {
		return err
	}
	for _, w := range c.set.warnings {
		c.Warn("%s", w)
	}
	return nil
}

func (c *creation) Plan(ctx context.Context) (plan.Plan, error) {
	p, err := c.run.Plan(ctx, c.set.identities, c.set.named)
	c.allNew = p.Creates(iam.IdentityThing) == len(c.set.identities)
	return p, err
}

// tenantID returns the tenant, also where the caller may not read the subscription.
func (r *run) tenantID() string {
	if r.tenant != "" {
		return r.tenant
	}
	return r.O.Tenant
}

func (c *creation) DryRun(d install.Documents) (issuer, identities []ccoctl.File) {
	issuer = []ccoctl.File{ccoctl.AzureDiscoveryFile(d.Discovery), ccoctl.AzureJWKSFile(d.JWKS), ccoctl.AzureWebhookFile(c.O.Tenant)}
	return issuer, c.secrets(c.set)
}

func (c *creation) Secrets() []ccoctl.File {
	if c.published {
		return c.secrets(c.set)
	}
	return append(c.secrets(c.set), ccoctl.AzureWebhookFile(c.tenantID()))
}

// IdentitiesOptions say which identities to make for an issuer that is published.
type IdentitiesOptions struct {
	Options
	Identities RequestedIdentities
}

// IdentitiesCreated is what [CreateIdentities] made.
type IdentitiesCreated struct {
	install.Identities
	AllNew bool // none of the identities was there before
}

// CreateIdentities makes the identities that a release's CredentialsRequests ask for, and the Secrets that name them. Existing
// ones are compared and brought up to date: what a new release needs is added before anything is taken away.
func CreateIdentities(ctx context.Context, o IdentitiesOptions) (IdentitiesCreated, error) {
	c, err := newCreation(o.Options, &o.Identities)
	if err != nil {
		return IdentitiesCreated{}, err
	}
	c.published = true
	made, err := c.CreateIdentities(ctx, install.CreateOptions{Notes: c.set.skipped, Parallel: iam.Parallel}, c, o.IssuerURL)
	return IdentitiesCreated{made, c.allNew && o.Mode == install.Apply}, err
}
