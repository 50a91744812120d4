package install

import (
	"context"
	"fmt"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// CreateOptions say which installation to make.
type CreateOptions struct {
	Options                   // with Usual, roles that ask for other audiences keep them
	PublicKey *PublicKey      // the cluster's; nil for the key pair in Dir, generated if need be
	Roles     *RequestedRoles // nil: no roles
}

// Created is an installation.
type Created struct {
	Preview     *plan.Preview // with mode Preview; everything else is zero then
	ProviderARN string
	KeySet      keystore.KeySet
	Roles       int
	Secrets     int
	PrivateKey  string // path; empty if the cluster's private key is elsewhere
}

// Create makes or reuses the cluster's key pair, publishes its public half under the issuer URL, waits until relying
// parties find it there, makes the IAM OIDC identity provider and the roles, and writes what an installer takes. What is
// there already is compared and brought up to date.
func Create(ctx context.Context, o CreateOptions) (Created, error) {
	c := &creation{run: newRun(o.Options), o: o}
	if err := c.check(ctx); err != nil {
		return Created{}, err
	}
	if o.Mode == DryRun {
		c.lines(c.roles.skipped)
		return Created{PrivateKey: c.keys.private}, c.dryRun()
	}
	if err := c.identify(ctx, o.Options); err != nil {
		return Created{}, err
	}
	c.lines(c.roles.skipped)
	if o.Mode == Preview {
		p, err := c.planAccount(ctx)
		if err != nil {
			return Created{}, err
		}
		v := p.Preview().After(c.localChanges()...)
		return Created{Preview: &v}, nil
	}
	if !c.set.found() { // before it is published, and a wait of minutes: would AWS refuse the rest?
		if _, err := c.planAccount(ctx); err != nil {
			return Created{}, err
		}
	}
	if err := c.completeKeyPair(c.o.Dir, &c.keys); err != nil {
		return Created{}, err
	}
	if err := c.publishKey(ctx); err != nil {
		return Created{}, err
	}
	p, err := c.planAccount(ctx) // the provider before the roles: one that trusts a missing provider works for nobody
	if err != nil {
		return Created{}, err
	}
	if err := c.apply(ctx, p); err != nil {
		return Created{}, err
	}
	return c.handOver()
}

// creation is one run of [Create].
type creation struct {
	*run
	o     CreateOptions
	keys  keyPair
	site  site
	roles roleSet
	set   publication
}

// check reads what is on this machine and in the store, and checks all of it before the first call and the first write.
func (c *creation) check(ctx context.Context) error {
	var err error
	if c.o.Roles != nil {
		if c.roles, err = readRoles(c.o.Options, *c.o.Roles); err != nil {
			c.lines(c.roles.skipped)
			return err
		}
	}
	if k := c.o.PublicKey; k != nil {
		c.keys = keyPair{public: k.File, key: k.Key, complete: true}
	} else if c.keys, err = findKeyPair(c.o.Dir); err != nil {
		return err
	}
	if err := awsiam.Check(c.o.provider(), c.o.trust(""), c.roles.roles); err != nil || c.o.Mode == DryRun {
		return err
	}
	if c.site, err = newSite(c.o.Site, c.o.IssuerURL); err != nil {
		return err
	}
	c.set = publication{name: keystore.Name(c.o.Name), url: c.o.IssuerURL, source: c.keys.public, policy: c.o.Policy, dev: c.o.Dev}
	if !c.keys.missing() {
		c.set.keys = []keystore.VerificationKey{c.keys.key}
	}
	if err := c.set.lookUp(ctx, c.store); err != nil || !c.set.found() {
		return err
	}
	if c.o.Mode == Preview && c.keys.missing() {
		return nil // the pair is kept elsewhere
	}
	return c.set.checkKey(c.set.stored)
}

// dryRun writes what Create would make in the account, for the AWS CLI. As with ccoctl the key pair is real, and stays.
func (c *creation) dryRun() error {
	if err := c.completeKeyPair(c.o.Dir, &c.keys); err != nil {
		return err
	}
	if err := c.writeProvider(c.o, c.keys.key); err != nil {
		return err
	}
	if err := c.writeAuthentication(c.o.Dir, c.o.IssuerURL); err != nil || c.o.Roles == nil {
		return err
	}
	if err := c.writeRoles(c.o.Dir, c.roles, c.o.trust(c.o.futureProviderARN())); err != nil {
		return err
	}
	return c.installSigningKey(c.o.Dir, c.keys)
}

// localChanges are those that Create makes before it calls AWS.
func (c *creation) localChanges() []plan.Change {
	if c.set.found() {
		return nil
	}
	var changes []plan.Change
	if c.keys.missing() {
		changes = append(changes, plan.Change{Verb: plan.Create, Thing: "key pair", Name: c.keys.private})
	}
	return append(changes, plan.Change{Verb: plan.Create, Thing: "key set", Name: c.o.Name, Diff: []string{"+ " + c.o.IssuerURL}})
}

// planAccount plans the provider and the roles. Now that the account is known, ARNs are compared with it.
func (c *creation) planAccount(ctx context.Context) (plan.Plan, error) {
	trust := c.o.trust(c.account.ProviderARN(c.o.IssuerURL))
	if err := awsiam.Check(c.o.provider(), trust, c.roles.roles); err != nil {
		return plan.Plan{}, err
	}
	p, err := c.client.PlanProvider(ctx, c.account, c.o.provider())
	if err != nil || c.o.Roles == nil {
		return p, err
	}
	roles, err := c.planRoles(ctx, c.roles, trust)
	return p.Then(roles), err
}

// publishKey stores the key set and waits until relying parties find it.
func (c *creation) publishKey(ctx context.Context) error {
	c.set.keys = []keystore.VerificationKey{c.keys.key}
	if err := c.publish(ctx, &c.set, c.set.checkKey); err != nil {
		return err
	}
	set := c.set.stored
	if k, _ := set.Key(c.keys.key.ID()); k.State == keystore.Next {
		c.report(Event{Kind: KeyIsNext, KeySet: set.Name(), Key: k.ID(),
			Text: fmt.Sprintf("key %s is next in key set %q: the cluster may sign with it only once it is active", k.ID(), set.Name())})
	}
	if addresses, err := c.site.publicAddresses(ctx); err == nil && !set.Dev() {
		if private := privateAddresses(addresses); len(private) > 0 {
			c.warn("%s leads to %s here; AWS must reach it on the public internet", c.o.IssuerURL, strings.Join(private, ", "))
		}
	}
	return c.awaitServed(ctx, c.site, set, c.keys.key)
}

// handOver writes what the installer takes.
func (c *creation) handOver() (Created, error) {
	made := Created{
		ProviderARN: c.account.ProviderARN(c.o.IssuerURL), KeySet: c.set.stored,
		Roles: len(c.roles.roles), Secrets: len(c.roles.requests), PrivateKey: c.keys.private,
	}
	if c.o.Roles == nil {
		return made, c.writeAuthentication(c.o.Dir, c.o.IssuerURL)
	}
	if _, err := c.writeSecrets(c.o.Dir, c.roles); err != nil {
		return Created{}, err
	}
	if err := c.writeAuthentication(c.o.Dir, c.o.IssuerURL); err != nil {
		return Created{}, err
	}
	if err := c.installSigningKey(c.o.Dir, c.keys); err != nil {
		return Created{}, err
	}
	c.line("Made for %s in account %s: key set %s, IAM OIDC identity provider %s, %s, %s", c.o.Name, c.account.ID, made.KeySet.Name(),
		made.ProviderARN, text.Count(made.Roles, "role", "roles"), text.Count(made.Secrets, "Secret", "Secrets"))
	return made, nil
}
