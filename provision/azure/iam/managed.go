package iam

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// What an identity is called, for people and in its ID.
const (
	IdentityThing  = "managed identity"
	identityAction = "Microsoft.ManagedIdentity/userAssignedIdentities/"
)

// identityState is a user-assigned managed identity as Azure shows it.
type identityState struct {
	id, name, location        string
	tenant, principal, client string // IDs
	tags                      map[string]string
}

func stateOf(i armmsi.Identity) identityState {
	p := arm.Deref(i.Properties)
	return identityState{arm.Deref(i.ID), arm.Deref(i.Name), arm.Deref(i.Location), arm.Deref(p.TenantID), arm.Deref(p.PrincipalID), arm.Deref(p.ClientID),
		arm.Tags(i.Tags)}
}

// readIdentities returns those of their group; none if the group is not there.
func (r *Run) readIdentities(ctx context.Context) ([]identityState, error) {
	list, err := arm.All(ctx, arm.PagesOf(r.Client, identityAction+"read", r.Identities.NewListByResourceGroupPager(r.O.OIDCGroup, nil)),
		func(p armmsi.UserAssignedIdentitiesClientListByResourceGroupResponse) []*armmsi.Identity {
			return p.Value
		}, stateOf)
	if arm.IsMissing(err) {
		return nil, nil
	}
	for _, s := range list {
		r.learn(s)
	}
	return list, err
}

// readIdentity returns nil for an identity that is not there.
func (r *Run) readIdentity(ctx context.Context, name string) (*identityState, error) {
	i, err := arm.Send(ctx, r.Client, identityAction+"read", func(ctx context.Context) (armmsi.UserAssignedIdentitiesClientGetResponse, error) {
		return r.Identities.Get(ctx, r.O.OIDCGroup, name, nil)
	})
	switch {
	case arm.IsMissing(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s := stateOf(i.Identity)
	r.learn(s)
	return &s, nil
}

// planIdentity plans to make an identity, or to tag it.
func (r *Run) planIdentity(name string, have *identityState) (plan.Plan, error) {
	return cloud.Thing[*identityState]{
		Kind: IdentityThing, Name: name, Missing: have == nil, Found: "Found existing user-assigned managed identity " + r.IdentityID(name),
		Read:   func(ctx context.Context) (*identityState, error) { return r.readIdentity(ctx, name) },
		Decide: decided(func(have *identityState) ([]cloud.Step, error) { return r.identitySteps(name, have) }),
	}.Plan(r.API, have)
}

// identitySteps returns the steps from have to an identity of this name. Its region stays: it matters to nobody but Azure.
func (r *Run) identitySteps(name string, have *identityState) ([]cloud.Step, error) {
	want := r.Owner.tags(r.O.Tags)
	if have == nil {
		_, diff := missingTags(nil, want)
		id := r.IdentityID(name)
		return []cloud.Step{{Key: "put", Line: "Created user-assigned managed identity " + id, Diff: diff,
			Call: r.Writing(identityAction+"write", func(ctx context.Context) (any, error) {
				i, err := r.Identities.CreateOrUpdate(ctx, r.O.OIDCGroup, name, armmsi.Identity{Location: &r.O.Region, Tags: arm.Pointers(want)}, nil)
				if err == nil {
					r.learn(stateOf(i.Identity))
				}
				return i, err
			})}}, nil
	}
	if !r.Owner.owns(have.tags) && !r.O.Adopt {
		return nil, r.Owner.refuse(IdentityThing+" "+name, have.tags)
	}
	return r.tagSteps(r.IdentityID(name), "Updated user-assigned managed identity "+have.id, have.tags, want), nil
}

// IdentityID returns the ID that an identity of the group has.
func (r *Run) IdentityID(name string) string {
	return r.scope() + "/resourceGroups/" + r.O.OIDCGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + name
}

// planDeleteIdentity plans to delete an identity with its federated credentials.
func (r *Run) planDeleteIdentity(have identityState) plan.Stage {
	steps := func(have *identityState) ([]cloud.Step, error) {
		if have == nil {
			return nil, nil
		}
		if !r.Owner.owns(have.tags) {
			return nil, r.Owner.refuse(IdentityThing+" "+have.name, have.tags)
		}
		if says := shared(IdentityThing+" "+have.name, have.tags); says != "" {
			return nil, errors.New(says)
		}
		return []cloud.Step{{Key: "delete", Line: "Deleted Microsoft.ManagedIdentity/userAssignedIdentities " + have.id,
			Call: r.Deleting(identityAction+"delete", func(ctx context.Context) (any, error) {
				return r.Identities.Delete(ctx, r.O.OIDCGroup, have.name, nil)
			})}}, nil
	}
	first, _ := steps(&have) // it belongs only to the owner
	read := func(ctx context.Context) (*identityState, error) { return r.readIdentity(ctx, have.name) }
	return r.API.Stage(plan.Change{Verb: plan.Delete, Thing: IdentityThing, Name: have.name}, first, cloud.After(read, steps))
}
