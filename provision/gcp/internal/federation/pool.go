package federation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
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

// settling is how long one of Google's servers may not know what an earlier command has made, and another server has shown to it.
const settling = 10 * time.Second

// expected reads what an earlier command has made. What is not there is read again while it may settle.
func expected[T any](ctx context.Context, c *Client, what string, read func() (*T, error)) (*T, error) {
	wait := c.Rest.API.Await(what)
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
	return expected(ctx, c, PoolThing+" "+pool, func() (*poolState, error) { return c.readPool(ctx, p, pool) })
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
func (c *Client) decidePool(p Project, w Pool, have *poolState) (rest.Decision, error) {
	if have == nil {
		k := poolCall(p, w.ID, "CreateWorkloadIdentityPool", "create")
		k.Method, k.Path, k.Query = "POST", "projects/"+p.Number+"/locations/global/workloadIdentityPools", rest.Query("workloadIdentityPoolId", w.ID)
		k.Body = w.body()
		step := c.Rest.ChangeStep(k, "Workload identity pool created with name "+w.ID)
		step.Read = true // the next command reads it
		return rest.Decision{Steps: []cloud.Step{step}}, nil
	}
	ours := w.Owner.Takes(have.Description)
	if !ours && !w.Adopt {
		return rest.Decision{}, w.Owner.NotOwned(PoolThing, w.ID, have.Description)
	}
	var d rest.Decision
	if have.isDeleted() {
		k := poolCall(p, w.ID, "UndeleteWorkloadIdentityPool", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", struct{}{}
		d.Steps = append(d.Steps, c.Rest.ChangeStep(k, fmt.Sprintf("Workload identity pool %s was deleted, undeleting it", w.ID), rest.Undeleted))
		// Google does not say which come back. They are not brought back unasked: one may hold a key that was revoked since.
		d.Warnings = append(d.Warnings, fmt.Sprintf("pool %s was deleted, and its other providers may come back with it, with the keys that they had: %s", w.ID,
			text.Quoted("gcloud", "iam", "workload-identity-pools", "providers", "list", "--show-deleted", "--workload-identity-pool", w.ID, "--location", "global", "--project", p.ID)))
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
