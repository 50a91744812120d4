package federation

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/rest"
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
