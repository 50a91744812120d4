package gcp

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// CreateOptions say which installation to make.
type CreateOptions struct {
	Options
	PublicKey *install.PublicKey // the cluster's; nil for the key pair in Dir, generated if need be
	Stored    bool               // without PublicKey: the keys that are stored under the issuer URL
	Accounts  *RequestedAccounts // nil: only the provider, in a pool that exists
}

// Created is an installation.
type Created struct {
	install.Created
	Provider string // its full name
	Copy     string // what a policy calls the copy of the keys that it holds; empty without Upload
	Accounts int
	Secrets  int
}

// Create makes an installation as [install.Run.Create] does: with a workload identity pool, its provider, and service accounts.
func Create(ctx context.Context, o CreateOptions) (Created, error) {
	c, err := newCreation(o.Options, o.Accounts)
	if err != nil {
		return Created{}, err
	}
	options := install.CreateOptions{
		PublicKey: o.PublicKey, Stored: o.Stored, Identities: c.all, Notes: c.set.skipped, Parallel: iam.Parallel,
		TrustPlanned: true, // the provider is in every plan
	}
	if o.Upload {
		options.Copy = c.takeKeys
	}
	made, err := c.Create(ctx, options, c)
	if err != nil || o.Mode != install.Apply {
		return Created{Created: made}, err
	}
	created := Created{Created: made, Provider: c.provider(), Accounts: len(c.set.wanted.List), Secrets: len(c.set.requests)}
	if o.Upload {
		created.Copy = c.copyParty()
	}
	if c.all {
		c.Line("%s %s in project %s: key set %s, workload identity provider %s, %s, %s", made.Title(), o.Name, c.project.ID, made.KeySet.Name(),
			created.Provider, text.Count(created.Accounts, "service account", "service accounts"), text.Count(created.Secrets, "Secret", "Secrets"))
	}
	return created, nil
}

// creation is one run of [Create] or [CreateAccounts]. It is the [install.Cloud] of that run.
type creation struct {
	*run
	all  bool // pool and accounts too
	only bool // only accounts, for a provider that exists
	set  requestSet
	jwks []byte        // to upload; nil while the key is not known, and where Google fetches it
	of   keystore.Name // whose keys jwks are; empty for a key set that is still to be made
}

// newCreation reads the requests for accounts; nil are none.
func newCreation(o Options, q *RequestedAccounts) (c *creation, err error) {
	c = &creation{run: newRun(o), all: q != nil}
	if q != nil {
		if c.set, err = readRequests(c.o, *q); err != nil {
			c.Lines(c.set.skipped)
		}
	}
	return c, err
}

// takeKeys takes the keys to upload.
func (c *creation) takeKeys(stored keystore.KeySet, jwks []byte) { c.jwks, c.of = jwks, stored.Name() }

func (c *creation) wanted() iam.Wanted {
	if c.only {
		return iam.Wanted{Accounts: &c.set.wanted}
	}
	w := iam.Wanted{Provider: c.o.provider(c.jwks, c.of)}
	if c.all {
		w.Pool, w.Accounts = c.o.pool(), &c.set.wanted
	}
	return w
}

func (c *creation) Check(key keystore.VerificationKey) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return c.set.wanted.Check()
}

// checkKey returns an error for a key whose tokens Google refuses; the zero key is one that is still to be made.
func checkKey(key keystore.VerificationKey) error {
	if key.ID() != "" && !party.Takes("gcp", key.Alg()) {
		return fmt.Errorf("the cluster's key %s is for %s, and Google takes only tokens signed with RS256 or ES256", key.ID(), key.Alg())
	}
	return nil
}

func (c *creation) Identify(ctx context.Context) error {
	if err := c.identify(ctx); err != nil {
		return err
	}
	if c.only {
		issuerURL, err := c.checkProvider(ctx)
		if err != nil {
			return err
		}
		return c.CheckDir(issuerURL)
	}
	if c.o.Upload {
		c.nameCopy()
	}
	return nil
}

func (c *creation) Plan(ctx context.Context) (plan.Plan, error) {
	p, err := c.client.Plan(ctx, c.wanted())
	c.set.emails = p.Emails
	return p.Plan, err
}

func (c *creation) DryRun(d install.Documents) (issuer, identities []ccoctl.File) {
	c.jwks = d.JWKS
	if c.all {
		issuer = append(issuer, c.poolScript())
	}
	issuer = append(issuer, ccoctl.GCPDiscoveryFile(d.Discovery), ccoctl.GCPJWKSFile(d.JWKS), c.providerScript(c.jwks))
	return issuer, c.accountFiles(c.set)
}

func (c *creation) Secrets() []ccoctl.File { return c.secrets(c.set) }
