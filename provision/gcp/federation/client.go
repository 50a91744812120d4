// Package federation registers issuers with a project of Google Cloud: a workload identity pool, and in it a provider, which may be given a copy
// of the keys. It knows whose each is by its description, and changes nothing of somebody else's unless that is to be adopted.
package federation

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

// Project is a Google Cloud project.
type Project struct {
	ID     string // "my-project"
	Number string // "123456789012"
	Caller string // the email of the credentials' account; empty if they do not say
}

// PoolName returns the full name of a pool: projects/NUMBER/locations/global/workloadIdentityPools/ID.
func (p Project) PoolName(pool string) string {
	return "projects/" + p.Number + "/locations/global/workloadIdentityPools/" + pool
}

// ProviderName returns the full name of a provider: PoolName/providers/ID.
func (p Project) ProviderName(pool, provider string) string {
	return p.PoolName(pool) + "/providers/" + provider
}

// Audience returns what a credential configuration names as its audience: "//iam.googleapis.com/" and the provider's full
// name. The host is the same in every universe.
func (p Project) Audience(pool, provider string) string {
	return "//iam.googleapis.com/" + p.ProviderName(pool, provider)
}

// Email returns the email of the service account with an ID. A project of the older sort, DOMAIN:NAME, has NAME.DOMAIN there.
func (p Project) Email(accountID string) string {
	place := p.ID
	if domain, name, old := strings.Cut(p.ID, ":"); old {
		place = name + "." + domain
	}
	return accountID + "@" + place + ".iam.gserviceaccount.com"
}

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct {
	Rest  *rest.Client
	meant string // ID or number of the project

	mu      sync.Mutex
	project *Project // nil until it was read
}

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [rest.Open]. It calls nobody but the
// metadata server of a machine in Google Cloud. The error has the problem [rest.NoCredentials].
func Open(ctx context.Context, a rest.Access) (*Client, error) {
	c, err := rest.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{Rest: c, meant: a.Project}, nil
}

// Project returns the project that is meant, which is asked for once. The error has the problem [rest.WrongProject] if the
// credentials do not see it.
func (c *Client) Project(ctx context.Context) (Project, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.project != nil {
		return *c.project, nil
	}
	var out struct {
		ID     string `json:"projectId"`
		Number string `json:"projectNumber"`
		State  string `json:"lifecycleState"`
	}
	meant := c.meant
	err := c.Rest.Ask(ctx, rest.Call{Service: rest.ResourceManager, Name: "GetProject", Needs: "resourcemanager.projects.get", Path: "projects/" + meant}, &out)
	switch {
	case rest.IsMissing(err) || rest.Is(err, rest.Denied):
		return Project{}, rest.Problemf(rest.WrongProject, "the credentials see no project %q, or may not read it: %w", meant, err)
	case err != nil:
		return Project{}, err
	case out.State != "" && out.State != active:
		return Project{}, rest.Problemf(rest.WrongProject, "project %s is not active (%s)", out.ID, out.State)
	}
	c.project = &Project{ID: out.ID, Number: out.Number, Caller: c.Rest.Caller}
	return *c.project, nil
}

// active is the state of what is neither deleted nor about to be.
const active = "ACTIVE"

// SecondProviderID returns the ID of the provider to which the cluster of an installation moves for another issuer, the same in every run.
func SecondProviderID(installation, issuerURL string) string {
	return rest.Cut(installation, 26) + "-" + rest.Hashed(issuerURL)
}

// CheckPoolID returns an error unless a pool or a provider, as what says, can have an ID. The rule is [party.IsPoolID], by which
// policies name providers too.
func CheckPoolID(what, id string) error {
	if !party.IsPoolID(id) {
		return fmt.Errorf("the name of the %s, %q, must have 4 to 32 lower-case letters, digits or hyphens, and not begin with gcp-", what, id)
	}
	return nil
}

// State is what a project has of what is wanted.
type State struct {
	pool     *poolState
	provider *providerState
}

// Read reads the pool and the provider that are wanted, side by side; either may be nil. A provider's pool is read too.
func (c *Client) Read(ctx context.Context, p Project, pool *Pool, provider *Provider) (s State, err error) {
	group, ctx := errgroup.WithContext(ctx)
	if pool != nil {
		group.Go(func() (err error) { s.pool, err = c.readPool(ctx, p, pool.ID); return err })
	}
	if provider != nil {
		group.Go(func() (err error) { s.provider, err = c.readProvider(ctx, p, provider.Pool, provider.ID); return err })
	}
	if pool == nil && provider != nil {
		group.Go(func() (err error) { s.pool, err = c.readPool(ctx, p, provider.Pool); return err })
	}
	err = group.Wait()
	return s, err
}

// Plan plans the way from s to the pool and the provider that are wanted; either may be nil.
func (c *Client) Plan(p Project, pool *Pool, provider *Provider, s State) (out plan.Plan, err error) {
	if pool != nil {
		out, err = cloud.Thing[*poolState]{
			Kind: PoolThing, Name: pool.ID, Found: fmt.Sprintf("Workload identity pool %s already exists", pool.ID),
			Missing: s.pool == nil, Deleted: s.pool.isDeleted(),
			Read:   func(ctx context.Context) (*poolState, error) { return c.readPool(ctx, p, pool.ID) },
			Decide: func(have *poolState) (cloud.Decision, error) { return c.decidePool(p, *pool, have) },
		}.Plan(c.Rest.API, s.pool)
	}
	if err != nil || provider == nil {
		return out, err
	}
	w, have := *provider, s.provider
	if pool == nil {
		if err := s.pool.usable(w.Pool); err != nil {
			return plan.Plan{}, err
		}
	}
	w.vacant = have.isDeleted() || s.pool.isDeleted()
	next, err := cloud.Thing[*providerState]{
		Kind: providerThing, Name: p.ProviderName(w.Pool, w.ID), Found: fmt.Sprintf("Workload identity provider %s already exists in pool %s", w.ID, w.Pool),
		Missing: have == nil, Deleted: have.isDeleted(),
		Read:   func(ctx context.Context) (*providerState, error) { return c.readProvider(ctx, p, w.Pool, w.ID) },
		Decide: func(have *providerState) (cloud.Decision, error) { return c.decideProvider(p, w, have) },
	}.Plan(c.Rest.API, have)
	return out.Then(next), err
}

// CreateJSON returns the body of the call that makes the pool (workloadIdentityPools.create).
func (w Pool) CreateJSON() []byte { return rest.Readable(w.body()) }

// CreateJSON returns the body of the call that makes the provider (workloadIdentityPools.providers.create). The error is about
// the keys to upload.
func (w Provider) CreateJSON() ([]byte, error) {
	body, err := w.body()
	return rest.Readable(body), err
}
