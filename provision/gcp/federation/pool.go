package federation

import (
	"context"
	"fmt"
	"path"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

// PoolThing is how plans and messages call a pool.
const PoolThing = "workload identity pool"

// deleted is the state of a pool or a provider that Google still keeps.
const deleted = "DELETED"

// Pool is a workload identity pool as it should be: there, enabled, not deleted.
type Pool struct {
	ID    string
	Owner Owner // the zero one leaves open for which installation it is, as ccoctl does
	Adopt bool  // take over a pool that is somebody else's
}

// poolState is a pool as IAM shows it.
type poolState struct {
	Description string `json:"description"`
	State       string `json:"state"`
	Disabled    bool   `json:"disabled"`
}

func (s *poolState) isDeleted() bool { return s != nil && s.State == deleted }

func poolCall(p Project, pool, name, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: name, Needs: "iam.workloadIdentityPools." + verb, Path: p.PoolName(pool)}
}

// readPool returns nil for a pool that is not there.
func (c *Client) readPool(ctx context.Context, p Project, pool string) (*poolState, error) {
	return rest.Present[poolState](ctx, c.Rest, poolCall(p, pool, "GetWorkloadIdentityPool", "get"))
}

// usable returns an error of the problem [rest.PoolUnusable] for a pool in which no provider works; nil is one that is not there.
func (s *poolState) usable(pool string) error {
	if s == nil {
		s = &poolState{}
	}
	if err := usable(PoolThing, pool, s.State, s.Disabled); err != nil {
		return &rest.Error{Problem: rest.PoolUnusable, Err: err}
	}
	return nil
}

// decidePool returns the steps from have to w.
func (c *Client) decidePool(p Project, w Pool, have *poolState) (cloud.Decision, error) {
	if have == nil {
		k := poolCall(p, w.ID, "CreateWorkloadIdentityPool", "create")
		k.Method, k.Path, k.Query = "POST", "projects/"+p.Number+"/locations/global/workloadIdentityPools", rest.Query("workloadIdentityPoolId", w.ID)
		k.Body = w.body()
		step := c.Rest.ChangeStep(k, "Workload identity pool created with name "+w.ID)
		step.Read = true // the next command reads it
		return cloud.Decision{Steps: []cloud.Step{step}}, nil
	}
	ours := w.Owner.Takes(have.Description)
	if !ours && !w.Adopt {
		return cloud.Decision{}, w.Owner.NotOwned(PoolThing, w.ID, have.Description)
	}
	var d cloud.Decision
	if have.isDeleted() {
		k := poolCall(p, w.ID, "UndeleteWorkloadIdentityPool", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.Steps = append(d.Steps, c.Rest.ChangeStep(k, fmt.Sprintf("Workload identity pool %s was deleted, undeleting it", w.ID), rest.Undeleted))
		// Google does not say which come back. They are not brought back unasked: one may hold a key that was revoked since.
		d.Warnings = append(d.Warnings, fmt.Sprintf("pool %s was deleted, and its other providers may come back with it, with the keys that they had: %s", w.ID,
			text.Quoted("gcloud", "iam", "workload-identity-pools", "providers", "list", "--show-deleted", "--workload-identity-pool", w.ID,
				"--location", "global", "--project", p.ID)))
	}
	set := rest.Patch{}
	if have.Disabled {
		set.Add("disabled", false, "- disabled")
	}
	if !ours {
		set.Add("description", w.Owner.Describe(have.Description), rest.Replaced("description ", have.Description, w.Owner.Describe(have.Description))...)
	}
	if len(set.Mask) > 0 {
		k := poolCall(p, w.ID, "PatchWorkloadIdentityPool", "update")
		d.Steps = append(d.Steps, c.Rest.ChangeStep(set.Call(k), "Workload identity pool "+w.ID+" updated", set.Diff...).Changed("workload identity pool "+w.ID))
	}
	return d, nil
}

func (w Pool) body() map[string]any {
	return map[string]any{"displayName": w.ID, "description": w.Owner.Describe(Made)}
}

// Contents is a pool as it is, with its providers but for those that are deleted.
type Contents struct {
	pool      *poolState // nil if it is not there
	providers []namedProvider
}

// ReadContents reads a pool with its providers.
func (c *Client) ReadContents(ctx context.Context, p Project, pool string) (out Contents, err error) {
	if out.pool, err = c.readPool(ctx, p, pool); err != nil || out.pool == nil || out.pool.isDeleted() {
		return out, err
	}
	out.providers, err = c.readProviders(ctx, p, pool)
	return out, err
}

// Goes reports whether a deletion by this owner deletes the pool.
func (t Contents) Goes(o Owner) bool {
	return t.pool != nil && !t.pool.isDeleted() && o.Takes(t.pool.Description)
}

// namedProvider is a provider in a list.
type namedProvider struct {
	Name string `json:"name"`
	providerState
}

// readProviders reads the providers of a pool but for those that are deleted.
func (c *Client) readProviders(ctx context.Context, p Project, pool string) ([]namedProvider, error) {
	k := providerCall(p.PoolName(pool)+"/providers", "ListWorkloadIdentityPoolProviders", "list")
	return rest.List[namedProvider](ctx, c.Rest, k, "workloadIdentityPoolProviders")
}

// PlanDeletePool plans to delete a pool of the owner's, with its providers.
func (c *Client) PlanDeletePool(p Project, o Owner, pool string, have Contents) (plan.Stage, []string, error) {
	if !have.Goes(o) {
		if have.pool == nil || have.pool.isDeleted() {
			return nil, nil, nil
		}
		return nil, []string{fmt.Sprintf("%v: it stays", o.NotOwned(PoolThing, pool, have.pool.Description))}, nil
	}
	if err := have.checkProviders(o, pool); err != nil {
		return nil, nil, err
	}
	k := poolCall(p, pool, "DeleteWorkloadIdentityPool", "delete")
	k.Method = "DELETE"
	step := c.Rest.ChangeStep(k, fmt.Sprintf("Workload identity pool %s deleted", pool))
	return c.Rest.API.Stage(plan.Change{Verb: plan.Delete, Thing: PoolThing, Name: pool}, []cloud.Step{step}, func(ctx context.Context) ([]cloud.Step, error) {
		now, err := c.ReadContents(ctx, p, pool) // Google deletes the providers with the pool, also one that was made since the plan
		if err != nil || now.pool == nil || now.pool.isDeleted() {
			return nil, err
		}
		if now.pool.Description != have.pool.Description {
			return nil, fmt.Errorf("its description has changed meanwhile; make the plan again")
		}
		return []cloud.Step{step}, now.checkProviders(o, pool)
	}), nil, nil
}

// checkProviders returns an error of the problem [rest.NotOwned] if a provider of the pool is somebody else's.
func (t Contents) checkProviders(o Owner, pool string) error {
	for _, v := range t.providers {
		if !o.takesNamed(path.Base(v.Name), v.Description) {
			return rest.Problemf(rest.NotOwned, "%s %s has a provider that is somebody else's, and that would go with it: %s; delete that one first",
				PoolThing, pool, v.Name)
		}
	}
	return nil
}

// Issuers returns those that the providers trust which a deletion by this owner deletes; a moved cluster has had two.
func (t Contents) Issuers(o Owner) []string {
	var issuers []string
	for _, have := range t.providers {
		if have.OIDC != nil && t.Goes(o) {
			issuers = append(issuers, have.OIDC.Issuer)
		}
	}
	return rest.Minus(issuers, nil)
}
