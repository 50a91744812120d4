package iam

import (
	"context"
	"slices"

	"github.com/keypost/keypost/provision/plan"
)

// Own is what an installation has.
type Own struct {
	Identities int
	Issuers    []string // that they trust
}

// PlanDelete plans to delete what keypost or ccoctl made under the installation's name: the assignments of its identities, its custom
// roles and its identities, and with group the resource group that these were in. That of the installation is the installer's.
func (r *Run) PlanDelete(ctx context.Context, group bool) (plan.Plan, Own, error) {
	identities, issuers, err := r.ours(ctx)
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	all, err := r.readRoles(ctx, "")
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	roles := slices.DeleteFunc(slices.Clone(all), func(role roleState) bool { return role.description != r.Owner.description })
	p, err := r.planRemoval(ctx, all, identities, roles)
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	if len(roles) == 0 {
		p.Notes = append(p.Notes, "Found no custom roles with description '"+r.Owner.description+"'")
	}
	own := Own{len(identities), issuers}
	if !group {
		return p, own, nil
	}
	last, err := r.planDeleteGroup(ctx)
	return p.Then(last), own, err
}

// ours reads the identities of the installation, and the issuers that they trust.
func (r *Run) ours(ctx context.Context) (identities []identityState, issuers []string, err error) {
	found, err := r.readIdentities(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range found {
		if r.Owner.owns(s.tags) {
			identities = append(identities, s)
		}
	}
	trusted, err := each(identities, func(s identityState) ([]Credential, error) {
		return r.readCredentials(ctx, r.O.OIDCGroup, s.name)
	})
	for _, list := range trusted {
		for _, c := range list {
			issuers = append(issuers, c.Issuer)
		}
	}
	slices.Sort(issuers)
	return identities, slices.Compact(issuers), err
}
