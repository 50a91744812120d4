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
	c := &creation{run: newRun(o.Options), wanted: o.Identities != nil}
	if o.Identities != nil {
		var err error
		if c.set, err = readIdentities(o.Options, *o.Identities); err != nil {
			c.Lines(c.set.skipped)
			return Created{}, err
		}
	}
	made, err := c.Create(ctx, install.CreateOptions{
		PublicKey: o.PublicKey, Stored: o.Stored, Identities: c.wanted, Notes: c.set.skipped, Parallel: iam.Parallel,
		Adopt: o.Adopt, TrustPlanned: c.wanted,
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

// creation is one run of [Create]. It is the [install.Cloud] of that run.
type creation struct {
	*run
	set    identitySet
	wanted bool // there are to be identities
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
	if err := c.identify(ctx); err != nil {
		return err
	}
	for _, w := range c.set.warnings {
		c.Warn("%s", w)
	}
	return nil
}

func (c *creation) Plan(ctx context.Context) (plan.Plan, error) {
	return c.run.Plan(ctx, c.set.identities)
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
	return append(c.secrets(c.set), ccoctl.AzureWebhookFile(c.tenantID()))
}

// IdentitiesOptions say which identities to make for an issuer that is published.
type IdentitiesOptions struct {
	Options
	Identities RequestedIdentities
}

// IdentitiesCreated is what [CreateIdentities] made.
type IdentitiesCreated struct {
	Preview *plan.Preview // with mode Preview; nothing else is set then
	Secrets []install.Secret
	AllNew  bool // none of the identities was there before
}

// CreateIdentities makes the identities that a release's CredentialsRequests ask for, and the Secrets that name them. Existing
// ones are compared and brought up to date: what a new release needs is added before anything is taken away.
func CreateIdentities(ctx context.Context, o IdentitiesOptions) (IdentitiesCreated, error) {
	r := newRun(o.Options)
	set, err := readIdentities(o.Options, o.Identities)
	if err != nil {
		r.Lines(set.skipped)
		return IdentitiesCreated{}, err
	}
	if err := check(o.Options, set.identities); err != nil {
		return IdentitiesCreated{}, err
	}
	if err := r.CheckDir(o.Adopt, o.IssuerURL); err != nil {
		return IdentitiesCreated{}, err
	}
	if o.Mode == install.DryRun {
		r.Lines(set.skipped)
		return IdentitiesCreated{}, r.WriteFiles(r.secrets(set)...)
	}
	if err := r.checkIssuer(ctx); err != nil {
		return IdentitiesCreated{}, err
	}
	if err := r.identify(ctx); err != nil {
		return IdentitiesCreated{}, err
	}
	r.Lines(set.skipped)
	for _, w := range set.warnings {
		r.Warn("%s", w)
	}
	p, err := r.Plan(ctx, set.identities)
	if err != nil {
		return IdentitiesCreated{}, err
	}
	if preview, err := r.CarryOut(ctx, p, iam.Parallel); err != nil || preview != nil {
		return IdentitiesCreated{Preview: preview}, err
	}
	files := r.secrets(set)
	made := IdentitiesCreated{AllNew: p.Creates(iam.IdentityThing) == len(set.identities)}
	for i, q := range set.requests {
		made.Secrets = append(made.Secrets, r.Secret(q.SecretNamespace, files[i]))
	}
	return made, r.WriteFiles(files...)
}
