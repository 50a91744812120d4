package azure

import (
	"context"
	"slices"

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
	if err := o.check(nil); err != nil {
		return Deleted{}, err
	}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	identities, issuers, err := r.ours(ctx)
	if err != nil {
		return Deleted{}, err
	}
	all, err := r.readRoles(ctx, "")
	if err != nil {
		return Deleted{}, err
	}
	roles := slices.DeleteFunc(slices.Clone(all), func(role roleState) bool { return role.description != r.owner.description })
	p, err := r.planRemoval(ctx, all, identities, roles)
	if err != nil {
		return Deleted{}, err
	}
	if len(roles) == 0 {
		p.Notes = append(p.Notes, "Found no custom roles with description '"+r.owner.description+"'")
	}
	if o.Group {
		group, err := r.planDeleteGroup(ctx)
		if err != nil {
			return Deleted{}, err
		}
		p = p.Then(group)
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() && len(identities) == 0 {
		r.Line("Nothing in resource group %s bears the tag %s", o.OIDCGroup, r.owner.tag)
	}
	return Deleted{Issuers: r.StillPublished(ctx, issuers)}, nil
}

// ours reads the identities of the installation, and the issuers that they trust.
func (r *run) ours(ctx context.Context) (identities []identityState, issuers []string, err error) {
	found, err := r.readIdentities(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range found {
		if r.owner.owns(s.tags) {
			identities = append(identities, s)
		}
	}
	trusted, err := each(identities, func(s identityState) ([]credential, error) {
		return r.readCredentials(ctx, r.o.OIDCGroup, s.name)
	})
	for _, list := range trusted {
		for _, c := range list {
			issuers = append(issuers, c.issuer)
		}
	}
	slices.Sort(issuers)
	return identities, slices.Compact(issuers), err
}
