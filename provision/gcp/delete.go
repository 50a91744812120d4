package gcp

import (
	"context"

	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options
	Requests    string // directory with the CredentialsRequests, by which more of ccoctl's accounts are found; may be empty
	CustomRoles bool   // also the custom roles that no other account has
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []install.StillPublished
}

// Delete deletes the accounts of an installation with their bindings, and its pool with the provider.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	d := Deletion{Name: o.Name, Pool: o.PoolID, CustomRoles: o.CustomRoles}
	if o.Requests != "" {
		requests, skipped, err := credrequest.ReadDir(credrequest.GCP, o.Requests, true)
		if err != nil {
			return Deleted{}, err
		}
		r.Lines(skipped)
		for _, q := range requests {
			if !q.HasIdentity() {
				d.Requests = append(d.Requests, q.Name)
			}
		}
	}
	if err := (Wanted{Pool: o.pool()}).Check(); err != nil {
		return Deleted{}, err
	}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	var issuers []string
	provider := o.provider(nil)
	if there, err := r.client.Provider(ctx, provider.Pool, provider.ID); err == nil { // else the pool has none, or is gone
		issuers = append(issuers, there.IssuerURL)
	}
	p, err := r.client.PlanDelete(ctx, d)
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		r.Line("Nothing in project %s belongs to %s", r.project.ID, o.Name)
		return Deleted{}, nil
	}
	return Deleted{Issuers: r.StillPublished(ctx, issuers)}, nil
}
