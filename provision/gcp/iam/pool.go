package iam

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
	"github.com/keypost/keypost/provision/plan"
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

// planPool plans the way from have to w.
func (c *Client) planPool(p Project, w Pool, have *poolState) (plan.Stage, []string, error) {
	steps, err := c.poolSteps(p, w, have)
	if err != nil {
		return nil, nil, err
	}
	change := plan.Change{Verb: plan.Update, Thing: poolThing, Name: w.ID}
	found := fmt.Sprintf("Workload identity pool %s already exists", w.ID)
	var notes []string
	if have == nil {
		change.Verb = plan.Create
	} else if have.State != deleted {
		notes = []string{found}
	}
	stage := c.rest.API.Stage(change, steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.readPool(ctx, p, w.ID)
		if err != nil {
			return nil, err
		}
		return c.poolSteps(p, w, have)
	})
	return cloud.OrFound(stage, found), notes, nil
}

// poolSteps returns the steps from have to w.
func (c *Client) poolSteps(p Project, w Pool, have *poolState) ([]cloud.Step, error) {
	if have == nil {
		k := poolCall(p, w.ID, "CreateWorkloadIdentityPool", "create")
		k.Method, k.Path, k.Query = "POST", "projects/"+p.Number+"/locations/global/workloadIdentityPools", rest.Query("workloadIdentityPoolId", w.ID)
		k.Body = w.body()
		step := c.rest.ChangeStep(k, "Workload identity pool created with name "+w.ID)
		step.Read = true // the next command reads it
		return []cloud.Step{step}, nil
	}
	ours := w.Owner.takes(have.Description)
	if !ours && !w.Adopt {
		return nil, w.Owner.notOwned(poolThing, w.ID, have.Description)
	}
	var steps []cloud.Step
	if have.State == deleted {
		k := poolCall(p, w.ID, "UndeleteWorkloadIdentityPool", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		steps = append(steps, c.rest.ChangeStep(k, fmt.Sprintf("Workload identity pool %s was deleted, undeleting it", w.ID), undeleted))
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
		steps = append(steps, c.rest.ChangeStep(set.call(k), "Workload identity pool "+w.ID+" updated", set.diff...).Changed("workload identity pool "+w.ID))
	}
	return steps, nil
}

// comeBack returns warnings of the providers that may come back with a deleted pool, or stay deleted, beside the one that is wanted, which
// is compared: Google does not say which. They are not brought back unasked: a copy of keys that one holds is what it was, and a key that
// was revoked since is in it. What cannot be listed holds nothing up.
func (c *Client) comeBack(ctx context.Context, p Project, w Wanted) []string {
	providers, err := c.readProviders(ctx, p, w.Pool.ID, true)
	if err != nil {
		return []string{fmt.Sprintf("pool %s was deleted, and its providers may come back with it, with the keys that they had; see which there are (%v): %s", w.Pool.ID, err,
			gcloudProviders(p, w.Pool.ID, "list"))}
	}
	var out []string
	for _, v := range providers {
		id := path.Base(v.Name)
		if w.Provider != nil && id == w.Provider.ID && w.Pool.ID == w.Provider.Pool {
			continue
		}
		out = append(out, fmt.Sprintf("with pool %s its provider %s may come back, or stay deleted, which takes %s; if somebody needs it: %s; if nobody does: %s",
			w.Pool.ID, id, v.takes(), w.Pool.revival(p, v), gcloudProviders(p, w.Pool.ID, "delete", id)))
	}
	return out
}

// revival returns the command after which a provider of the pool takes tokens.
func (w Pool) revival(p Project, v namedProvider) string {
	id, of := ProviderID{Project: p.ID, Pool: w.ID, Provider: path.Base(v.Name)}, v.registered()
	if w.Revival == nil || of.Installation == "" || of.IssuerURL == "" { // somebody else's
		return gcloudProviders(p, w.ID, "undelete", id.Provider)
	}
	return w.Revival(id, of)
}

func gcloudProviders(p Project, pool string, verb ...string) string {
	words := append([]string{"gcloud", "iam", "workload-identity-pools", "providers"}, verb...)
	return text.Quoted(append(words, "--workload-identity-pool", pool, "--location", "global", "--project", p.ID)...)
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
