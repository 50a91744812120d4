package iam

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const (
	groupThing  = "resource group"
	groupAction = "Microsoft.Resources/subscriptions/resourceGroups/"
	// groupPoll is how often is asked whether a group is deleted, where Azure does not say.
	groupPoll = 5 * time.Second
)

// groupState is a resource group as Azure shows it.
type groupState struct {
	id, name, location string
	tags               map[string]string
}

// readGroup returns nil for a group that is not there.
func (r *Run) readGroup(ctx context.Context, name string) (*groupState, error) {
	g, err := arm.Send(ctx, r.Client, groupAction+"read", func(ctx context.Context) (armresources.ResourceGroupsClientGetResponse, error) {
		return r.Groups.Get(ctx, name, nil)
	})
	switch {
	case arm.IsMissing(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &groupState{id: arm.Deref(g.ID), name: arm.Deref(g.Name), location: arm.Deref(g.Location), tags: arm.Tags(g.Tags)}, nil
}

// planGroup plans to make a resource group, or to tag it.
func (r *Run) planGroup(name string, have *groupState) (plan.Plan, error) {
	return cloud.Thing[*groupState]{
		Kind: groupThing, Name: name, Missing: have == nil, Found: "Found existing resource group " + r.O.GroupID(name),
		Read:   func(ctx context.Context) (*groupState, error) { return r.readGroup(ctx, name) },
		Decide: decided(func(have *groupState) ([]cloud.Step, error) { return r.groupSteps(name, have) }),
	}.Plan(r.API, have)
}

// groupSteps returns the steps from have to a resource group.
func (r *Run) groupSteps(name string, have *groupState) ([]cloud.Step, error) {
	want, id := r.Owner.tags(r.O.Tags), r.scope()+"/resourceGroups/"+name
	if have == nil {
		_, diff := missingTags(nil, want)
		return []cloud.Step{{Key: "put", Line: "Created resource group " + id, Diff: append([]string{"+ region " + r.O.Region}, diff...),
			Call: r.Writing(groupAction+"write", func(ctx context.Context) (any, error) {
				return r.Groups.CreateOrUpdate(ctx, name, armresources.ResourceGroup{Location: &r.O.Region, Tags: arm.Pointers(want)}, nil)
			})}}, nil
	}
	switch {
	case location(have.location) != location(r.O.Region):
		return nil, fmt.Errorf("resource group %s is in the region %s, and a group does not move to %s: choose that region, or another group",
			have.name, have.location, r.O.Region)
	case !r.Owner.owns(have.tags) && !r.O.Adopt:
		return nil, r.Owner.refuse(groupThing+" "+have.name, have.tags)
	}
	return r.tagSteps(id, "Updated tags of resource group "+have.id, have.tags, want), nil
}

// contents returns what is in the group of the identities, which is there: to a group that was read a moment before, no 404 means that it is empty.
func (r *Run) contents(ctx context.Context) ([]armresources.GenericResourceExpanded, error) {
	return arm.All(ctx, arm.PagesOf(r.Client, groupAction+"resources/read", r.Resources.NewListByResourceGroupPager(r.O.OIDCGroup, nil)),
		func(p armresources.ClientListByResourceGroupResponse) []*armresources.GenericResourceExpanded {
			return p.Value
		},
		func(v armresources.GenericResourceExpanded) armresources.GenericResourceExpanded { return v })
}

// planDeleteGroup plans to delete a group that is the owner's, and nobody else's, with nothing of others in it.
func (r *Run) planDeleteGroup(ctx context.Context) (plan.Plan, error) {
	steps, err := r.deleteGroupSteps(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	if len(steps) == 0 {
		notes = []string{fmt.Sprintf("Found no resource group %s. The resource group was already deleted or never existed", r.O.OIDCGroup)}
	}
	return plan.Of(notes, r.API.Stage(plan.Change{Verb: plan.Delete, Thing: groupThing, Name: r.O.OIDCGroup}, steps, r.deleteGroupSteps)), nil
}

func (r *Run) deleteGroupSteps(ctx context.Context) ([]cloud.Step, error) {
	have, err := r.readGroup(ctx, r.O.OIDCGroup)
	if have == nil || err != nil {
		return nil, err
	}
	if !r.Owner.owns(have.tags) {
		return nil, r.Owner.refuse(groupThing+" "+have.name, have.tags)
	}
	if says := shared(groupThing+" "+have.name, have.tags); says != "" {
		return nil, arm.Refuse(arm.OthersInGroup, "%s", says)
	}
	found, err := r.contents(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		what, tags := arm.Deref(f.Type)+" "+arm.Deref(f.Name), arm.Tags(f.Tags)
		if !r.Owner.owns(tags) || shared(what, tags) != "" {
			return nil, arm.Refuse(arm.OthersInGroup, "resource group %s has something in it that belongs not only to %s, and would be deleted with it: %s",
				have.name, r.Owner.Tag, what)
		}
	}
	return []cloud.Step{{Key: "delete", Line: "Deleted resource group " + have.name,
		Call: r.Deleting(groupAction+"delete", func(ctx context.Context) (any, error) {
			poller, err := r.Groups.BeginDelete(ctx, r.O.OIDCGroup, nil)
			if err != nil {
				return nil, err
			}
			return poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: groupPoll})
		})}}, nil
}
