package azure

import (
	"context"

	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options
	Group bool // also the resource group of the identities, if nothing of others is in it
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []install.StillPublished
}

// Delete deletes what keypost or ccoctl made under a name: the assignments of its identities, its custom roles and its
// identities, and with Group the resource group that these were in. That of the installation is the installer's.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	if err := check(o.Options, nil); err != nil {
		return Deleted{}, err
	}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	p, own, err := r.PlanDelete(ctx, o.Group)
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.CarryOut(ctx, p, iam.Parallel); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() && own.Identities == 0 {
		r.Line("Nothing in resource group %s bears the tag %s", o.OIDCGroup, r.Owner.Tag)
	}
	return Deleted{Issuers: r.StillPublished(ctx, own.Issuers)}, nil
}
