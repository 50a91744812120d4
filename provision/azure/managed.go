package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const identityThing = "managed identity"

// identityState is a user-assigned managed identity as Azure shows it.
type identityState struct {
	id, name, location        string
	tenant, principal, client string // IDs
	tags                      map[string]string
}

func stateOf(i armmsi.Identity) identityState {
	s := identityState{id: arm.Deref(i.ID), name: arm.Deref(i.Name), location: arm.Deref(i.Location), tags: arm.Tags(i.Tags)}
	if p := i.Properties; p != nil {
		s.tenant, s.principal, s.client = arm.Deref(p.TenantID), arm.Deref(p.PrincipalID), arm.Deref(p.ClientID)
	}
	return s
}

// check returns an error for an identity of which an ID is not known or has another form than IDs have: Secrets get them, and
// everything that is looked for by a principal that is none would be everybody's.
func (s identityState) check() error {
	for _, id := range []struct{ what, value string }{{"principal", s.principal}, {"client", s.client}, {"tenant", s.tenant}} {
		if !arm.IsGUID(id.value) {
			return fmt.Errorf("%s %s has the %s ID %q in Azure's answer, which is none: run this again", identityThing, s.name, id.what, id.value)
		}
	}
	return nil
}

// check returns an error for an identity with an ID that is none, or of another tenant than the subscription's: an identity is of its
// subscription's tenant (https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/overview), and a workload
// would show its tokens to whichever tenant its Secret names.
func (c *client) check(s identityState) error {
	if err := s.check(); err != nil {
		return err
	}
	if c.tenant != "" && !sameName(s.tenant, c.tenant) {
		return fmt.Errorf("%s %s is of tenant %s in Azure's answer, and its subscription is of %s: see what is between here and Azure", identityThing, s.name, s.tenant, c.tenant)
	}
	return nil
}

// readIdentities returns those of a group; none if the group is not there.
func (c *client) readIdentities(ctx context.Context, group string) ([]identityState, error) {
	list, err := arm.All(ctx, arm.PagesOf(c.Client, "Microsoft.ManagedIdentity/userAssignedIdentities/read",
		c.Identities.NewListByResourceGroupPager(group, nil)), func(p armmsi.UserAssignedIdentitiesClientListByResourceGroupResponse) []*armmsi.Identity {
		return p.Value
	}, stateOf)
	if arm.IsMissing(err) {
		return nil, nil
	}
	for _, s := range list {
		c.learn(s)
	}
	return list, err
}

// allIdentities returns those of the subscription.
func (c *client) allIdentities(ctx context.Context) ([]identityState, error) {
	return arm.All(ctx, arm.PagesOf(c.Client, "Microsoft.ManagedIdentity/userAssignedIdentities/read",
		c.Identities.NewListBySubscriptionPager(nil)), func(p armmsi.UserAssignedIdentitiesClientListBySubscriptionResponse) []*armmsi.Identity {
		return p.Value
	}, stateOf)
}

// groupOf returns the resource group that an identity of the subscription is in, by its ID.
func (c *client) groupOf(s identityState) (string, error) {
	parts := strings.Split(s.id, "/") // "", subscriptions, ID, resourceGroups, NAME, …
	if len(parts) < 5 || !groupForm.MatchString(parts[4]) || !identityForm.MatchString(s.name) || !sameName(s.id, c.identityID(parts[4], s.name)) {
		return "", fmt.Errorf("%s %q has the ID %q in Azure's answer, which is none of an identity of that name: see what is between here and Azure", identityThing, s.name, s.id)
	}
	return parts[4], nil
}

// readIdentity returns nil for an identity that is not there.
func (c *client) readIdentity(ctx context.Context, group, name string) (*identityState, error) {
	i, err := arm.Send(ctx, c.Client, "Microsoft.ManagedIdentity/userAssignedIdentities/read", func(ctx context.Context) (armmsi.UserAssignedIdentitiesClientGetResponse, error) {
		return c.Identities.Get(ctx, group, name, nil)
	})
	if arm.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := stateOf(i.Identity)
	if !sameName(s.name, name) {
		return nil, fmt.Errorf("the answer about %s %s is about %q: run this again", identityThing, name, s.name)
	}
	c.learn(s)
	return &s, nil
}

// home is a resource group with what is in it, and whose that is.
type home struct {
	group, location string
	owner           owner
	tags            map[string]string // beside the owner's
	adopt, prune    bool
}

// planIdentity plans to make an identity, or to tag it.
func (c *client) planIdentity(h home, name string, have *identityState) (plan.Plan, error) {
	p, err := planThing(c.API, thing[identityState]{identityThing, name,
		func(ctx context.Context) (*identityState, error) { return c.readIdentity(ctx, h.group, name) },
		func(have *identityState) ([]cloud.Step, error) { return c.identitySteps(h, name, have) }}, have)
	if have != nil {
		p.Notes = []string{"Found existing user-assigned managed identity " + have.id}
	}
	return p, err
}

// identitySteps returns the steps from have to an identity of this name. Its region stays: it matters to nobody but Azure.
func (c *client) identitySteps(h home, name string, have *identityState) ([]cloud.Step, error) {
	want := h.owner.tags(h.tags)
	if have == nil {
		_, diff := missingTags(nil, want)
		id := c.identityID(h.group, name)
		return []cloud.Step{{Key: "put", Line: "Created user-assigned managed identity " + id, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
			const action = "Microsoft.ManagedIdentity/userAssignedIdentities/write"
			i, err := arm.Send(ctx, c.Client, action, func(ctx context.Context) (armmsi.UserAssignedIdentitiesClientCreateOrUpdateResponse, error) {
				return c.Identities.CreateOrUpdate(ctx, h.group, name, armmsi.Identity{Location: &h.location, Tags: arm.Pointers(want)}, nil)
			})
			if err != nil {
				return arm.Answer(err)
			}
			made := stateOf(i.Identity)
			made.name = name
			if err := c.check(made); err != nil {
				return cloud.Refused, err
			}
			c.learnNew(made)
			return cloud.Accepted, nil
		}}}, nil
	}
	if err := c.check(*have); err != nil {
		return nil, err
	}
	if !h.owner.owns(have.tags) && !h.adopt {
		return nil, h.owner.refuse(identityThing+" "+name, have.tags)
	}
	return c.tagSteps(c.identityID(h.group, name), "Updated user-assigned managed identity "+have.id, have.tags, want), nil
}

func (c *client) identityID(group, name string) string {
	return c.scope() + "/resourceGroups/" + group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + name
}

// planDeleteIdentity plans to delete an identity with its federated credentials.
func (c *client) planDeleteIdentity(h home, have identityState) plan.Stage {
	steps := func(have *identityState) ([]cloud.Step, error) {
		if have == nil {
			return nil, nil
		}
		if !h.owner.owns(have.tags) {
			return nil, h.owner.refuse(identityThing+" "+have.name, have.tags)
		}
		if says := shared(identityThing+" "+have.name, have.tags); says != "" {
			return nil, errors.New(says)
		}
		return []cloud.Step{{Key: "delete", Line: "Deleted Microsoft.ManagedIdentity/userAssignedIdentities " + have.id,
			Call: func(ctx context.Context) (cloud.Answer, error) {
				_, err := arm.Send(ctx, c.Client, "Microsoft.ManagedIdentity/userAssignedIdentities/delete", func(ctx context.Context) (armmsi.UserAssignedIdentitiesClientDeleteResponse, error) {
					return c.Identities.Delete(ctx, h.group, have.name, nil)
				})
				return arm.Gone(err)
			}}}, nil
	}
	first, _ := steps(&have) // it is the owner's alone
	read := func(ctx context.Context) (*identityState, error) { return c.readIdentity(ctx, h.group, have.name) }
	return c.stage(plan.Change{Verb: plan.Delete, Thing: identityThing, Name: have.name}, first, then(read, steps))
}
