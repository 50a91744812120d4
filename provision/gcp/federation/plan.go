package federation

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

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
		out, err = rest.PlanOne(c.Rest, rest.Subject[*poolState]{
			Thing: PoolThing, Name: pool.ID, Found: fmt.Sprintf("Workload identity pool %s already exists", pool.ID),
			Missing: s.pool == nil, Deleted: s.pool.isDeleted(),
			Read:   func(ctx context.Context) (*poolState, error) { return c.readPool(ctx, p, pool.ID) },
			Decide: func(have *poolState) (rest.Decision, error) { return c.decidePool(p, *pool, have) },
		}, s.pool)
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
	if have != nil && have.OIDC != nil {
		w.held = &have.OIDC.JWKS
	}
	next, err := rest.PlanOne(c.Rest, rest.Subject[*providerState]{
		Thing: providerThing, Name: p.ProviderName(w.Pool, w.ID), Found: fmt.Sprintf("Workload identity provider %s already exists in pool %s", w.ID, w.Pool),
		Missing: have == nil, Deleted: have.isDeleted(),
		Read:   func(ctx context.Context) (*providerState, error) { return c.readProvider(ctx, p, w.Pool, w.ID) },
		Decide: func(have *providerState) (rest.Decision, error) { return c.decideProvider(p, w, have) },
	}, have)
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
