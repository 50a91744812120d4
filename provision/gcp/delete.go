package gcp

import (
	"context"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options
	CustomRoles bool // also the custom roles that no other account has
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []install.StillPublished
}

// Delete deletes the accounts of an installation with their bindings, and its pool with the provider.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	d := iam.Deletion{Name: o.Name, Pool: r.o.PoolID, CustomRoles: o.CustomRoles}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	p, issuers, err := r.client.PlanDelete(ctx, d)
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.CarryOut(ctx, p, iam.Parallel); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		r.Line("Nothing in project %s belongs to %s", r.project.ID, o.Name)
	}
	return Deleted{Issuers: r.StillPublished(ctx, issuers)}, nil
}
