package iam

import (
	"context"
	"strings"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// IdentityThing is what an identity is called, for people.
const IdentityThing = "managed identity"

// identityState is a user-assigned managed identity as Azure shows it.
type identityState struct {
	ID, Name   string
	Tags       map[string]string
	Properties struct{ TenantID, PrincipalID, ClientID string }
}

// readIdentities returns those of their group; none if the group is not there.
func (r *Run) readIdentities(ctx context.Context) ([]identityState, error) {
	list, err := arm.List[identityState](ctx, r.Client, identities.At(r.IdentityID("")))
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
	s, err := arm.Get[identityState](ctx, r.Client, identities.At(r.IdentityID(name)))
	if s != nil && err == nil {
		r.learn(*s)
	}
	return s, err
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
		id, made := r.IdentityID(name), identityState{}
		put := r.Put(identities.At(id), map[string]any{"location": r.O.Region, "tags": want}, &made)
		return []cloud.Step{{Key: "put", Line: "Created user-assigned managed identity " + id, Diff: diff,
			Call: func(ctx context.Context) (cloud.Answer, error) {
				answer, err := put(ctx)
				if err == nil {
					r.learn(made)
				}
				return answer, err
			}}}, nil
	}
	if !r.Owner.owns(have.Tags) && !r.O.Adopt {
		return nil, r.Owner.refuse(IdentityThing+" "+name, have.Tags)
	}
	return r.tagSteps(r.IdentityID(name), "Updated user-assigned managed identity "+have.ID, have.Tags, want), nil
}

// IdentityID returns the ID that an identity of the group has; without a name, where they are listed.
func (r *Run) IdentityID(name string) string {
	return strings.TrimSuffix(r.O.GroupID(r.O.OIDCGroup)+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+name, "/")
}

// planDeleteIdentity plans to delete an identity with its federated credentials.
func (r *Run) planDeleteIdentity(have identityState) plan.Stage {
	return r.API.Delete(plan.Change{Thing: IdentityThing, Name: have.Name}, cloud.Step{Key: "delete",
		Line: "Deleted Microsoft.ManagedIdentity/userAssignedIdentities " + have.ID, Call: r.Delete(identities.At(r.IdentityID(have.Name)))})
}
