package iam

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

const poolThing = "workload identity pool"

const (
	deleted   = "DELETED"                                                   // the state of a pool or a provider that Google still keeps
	undeleted = "+ brought back: it was deleted, and Google still keeps it" // what a plan shows of that
)

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
	return present[poolState](ctx, c, poolCall(p, pool, "GetWorkloadIdentityPool", "get"))
}

// present makes a call that reads one thing, and returns nil for one that is not there.
func present[T any](ctx context.Context, c *Client, k rest.Call) (*T, error) {
	var out T
	err := c.rest.Ask(ctx, k, &out)
	if rest.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// settling is how long one of Google's servers may not know what an earlier command has made, and another server has shown to it.
const settling = 10 * time.Second

// expected reads what an earlier command has made. What is not there is read again while it may settle.
func expected[T any](ctx context.Context, c *Client, what string, read func() (*T, error)) (*T, error) {
	wait := c.rest.API.Await(what)
	defer wait.Stop()
	wait.Because(errors.New("it is not there; perhaps it was made a moment ago"))
	for start := time.Now(); ; {
		have, err := read()
		if err != nil || have != nil || time.Since(start) >= settling {
			return have, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// expectedPool is readPool for a pool that an earlier command has made.
func (c *Client) expectedPool(ctx context.Context, p Project, pool string) (*poolState, error) {
	return expected(ctx, c, poolThing+" "+pool, func() (*poolState, error) { return c.readPool(ctx, p, pool) })
}

// usable returns an error of the problem [PoolUnusable] for a pool in which no provider works; nil is one that is not there.
func (s *poolState) usable(pool string) error {
	if s == nil {
		s = &poolState{}
	}
	if err := usable(poolThing, pool, s.State, s.Disabled); err != nil {
		return &Error{Problem: PoolUnusable, Err: err}
	}
	return nil
}

// decidePool returns the steps from have to w.
func (c *Client) decidePool(p Project, w Pool, have *poolState) (decision, error) {
	if have == nil {
		k := poolCall(p, w.ID, "CreateWorkloadIdentityPool", "create")
		k.Method, k.Path, k.Query = "POST", "projects/"+p.Number+"/locations/global/workloadIdentityPools", rest.Query("workloadIdentityPoolId", w.ID)
		k.Body = w.body()
		step := c.rest.ChangeStep(k, "Workload identity pool created with name "+w.ID)
		step.Read = true // the next command reads it
		return decision{steps: []cloud.Step{step}}, nil
	}
	ours := w.Owner.takes(have.Description)
	if !ours && !w.Adopt {
		return decision{}, w.Owner.notOwned(poolThing, w.ID, have.Description)
	}
	var d decision
	if have.isDeleted() {
		k := poolCall(p, w.ID, "UndeleteWorkloadIdentityPool", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.steps = append(d.steps, c.rest.ChangeStep(k, fmt.Sprintf("Workload identity pool %s was deleted, undeleting it", w.ID), undeleted))
		// Google does not say which come back. They are not brought back unasked: one may hold a key that was revoked since.
		d.warnings = append(d.warnings, fmt.Sprintf("pool %s was deleted, and its other providers may come back with it, with the keys that they had: %s", w.ID,
			text.Quoted("gcloud", "iam", "workload-identity-pools", "providers", "list", "--show-deleted", "--workload-identity-pool", w.ID, "--location", "global", "--project", p.ID)))
	}
	set := patch{}
	if have.Disabled {
		set.add("disabled", false, "- disabled")
	}
	if !ours {
		set.add("description", w.Owner.describe(have.Description), replaced("description ", have.Description, w.Owner.describe(have.Description))...)
	}
	if len(set.mask) > 0 {
		k := poolCall(p, w.ID, "PatchWorkloadIdentityPool", "update")
		d.steps = append(d.steps, c.rest.ChangeStep(set.call(k), "Workload identity pool "+w.ID+" updated", set.diff...).Changed("workload identity pool "+w.ID))
	}
	return d, nil
}

func (w Pool) body() map[string]any {
	return map[string]any{"displayName": w.ID, "description": w.Owner.describe(made)}
}

// patch collects what a PATCH changes.
type patch struct {
	mask []string
	body map[string]any
	diff []string
}

// add changes a field, which is named as in an update mask ("oidc.issuerUri").
func (p *patch) add(field string, value any, diff ...string) {
	p.mask, p.diff = append(p.mask, field), append(p.diff, diff...)
	if p.body == nil {
		p.body = map[string]any{}
	}
	put(p.body, field, value)
}

// call returns k as the PATCH.
func (p *patch) call(k rest.Call) rest.Call {
	k.Method, k.Query, k.Body = "PATCH", rest.Query("updateMask", joined(p.mask)), p.body
	return k
}

func replaced(what, before, after string) []string {
	var diff []string
	if before != "" {
		diff = append(diff, "- "+what+before)
	}
	if after != "" {
		diff = append(diff, "+ "+what+after)
	}
	return diff
}
