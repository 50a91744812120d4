package azure

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

const groupThing = "resource group"

// groupPoll is how often is asked whether a group is deleted, where Azure does not say.
const groupPoll = 5 * time.Second

// groupState is a resource group as Azure shows it.
type groupState struct {
	id, name, location string
	tags               map[string]string
	deleting           bool
}

func stateOfGroup(g armresources.ResourceGroup) groupState {
	s := groupState{id: arm.Deref(g.ID), name: arm.Deref(g.Name), location: arm.Deref(g.Location), tags: arm.Tags(g.Tags)}
	if g.Properties != nil {
		s.deleting = sameName(arm.Deref(g.Properties.ProvisioningState), "Deleting")
	}
	return s
}

// readGroup returns nil for a group that is not there.
func (c *client) readGroup(ctx context.Context, name string) (*groupState, error) {
	g, err := arm.Send(ctx, c.Client, "Microsoft.Resources/subscriptions/resourceGroups/read", func(ctx context.Context) (armresources.ResourceGroupsClientGetResponse, error) {
		return c.Groups.Get(ctx, name, nil)
	})
	if arm.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := stateOfGroup(g.ResourceGroup)
	if s.id == "" { // whose tags would be none, and be written so
		return nil, fmt.Errorf("the answer about resource group %s has no ID, so it is not Azure's: see what is between here and Azure", name)
	}
	return &s, nil
}

// planGroup plans to make the group h, or to tag it.
func (c *client) planGroup(h home, have *groupState) (plan.Plan, error) {
	p, err := planThing(c.API, thing[groupState]{groupThing, h.group,
		func(ctx context.Context) (*groupState, error) { return c.readGroup(ctx, h.group) },
		func(have *groupState) ([]cloud.Step, error) { return c.groupSteps(h, have) }}, have)
	if have != nil {
		p.Notes = []string{"Found existing resource group " + have.id}
	}
	return p, err
}

// groupSteps returns the steps from have to the group h.
func (c *client) groupSteps(h home, have *groupState) ([]cloud.Step, error) {
	want, id := h.owner.tags(h.tags), c.scope()+"/resourceGroups/"+h.group
	if have == nil {
		_, diff := missingTags(nil, want)
		return []cloud.Step{{Key: "put", Line: "Created resource group " + id, Diff: append([]string{"+ region " + h.location}, diff...),
			Call: func(ctx context.Context) (cloud.Answer, error) {
				const action = "Microsoft.Resources/subscriptions/resourceGroups/write"
				_, err := arm.Send(ctx, c.Client, action,
					func(ctx context.Context) (armresources.ResourceGroupsClientCreateOrUpdateResponse, error) {
						return c.Groups.CreateOrUpdate(ctx, h.group, armresources.ResourceGroup{Location: &h.location, Tags: arm.Pointers(want)}, nil)
					})
				return arm.Answer(err)
			}}}, nil
	}
	switch {
	case have.deleting:
		return nil, fmt.Errorf("resource group %s is being deleted: run it again once it is gone", have.name)
	case location(have.location) != location(h.location):
		return nil, fmt.Errorf("resource group %s is in the region %s, and a group does not move to %s: choose that region, or another group",
			have.name, have.location, h.location)
	case !h.owner.owns(have.tags) && !h.adopt:
		return nil, h.owner.refuse(groupThing+" "+have.name, have.tags)
	}
	return c.tagSteps(id, "Updated tags of resource group "+have.id, have.tags, want), nil
}

// content is something in a resource group.
type content struct {
	id, name, kind string
	tags           map[string]string
}

// contents returns what is in a group that is there: to a group that was read a moment before, no 404 means that it is empty.
func (c *client) contents(ctx context.Context, group string) ([]content, error) {
	return arm.All(ctx, arm.PagesOf(c.Client, "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
		c.Resources.NewListByResourceGroupPager(group, nil)), func(p armresources.ClientListByResourceGroupResponse) []*armresources.GenericResourceExpanded {
		return p.Value
	}, func(v armresources.GenericResourceExpanded) content {
		return content{arm.Deref(v.ID), arm.Deref(v.Name), arm.Deref(v.Type), arm.Tags(v.Tags)}
	})
}

// planDeleteGroup plans to delete a group that is the owner's, and nobody else's, with nothing of others in it.
func (c *client) planDeleteGroup(ctx context.Context, name string, o owner) (plan.Plan, error) {
	read := func(ctx context.Context) ([]cloud.Step, error) { return c.deleteGroupSteps(ctx, name, o) }
	steps, err := read(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	if len(steps) == 0 {
		notes = []string{fmt.Sprintf("Found no resource group %s. The resource group was already deleted or never existed", name)}
	}
	return plan.Of(notes, c.stage(plan.Change{Verb: plan.Delete, Thing: groupThing, Name: name}, steps, read)), nil
}

func (c *client) deleteGroupSteps(ctx context.Context, name string, o owner) ([]cloud.Step, error) {
	have, err := c.readGroup(ctx, name)
	if have == nil || err != nil {
		return nil, err
	}
	if !o.owns(have.tags) {
		return nil, o.refuse(groupThing+" "+have.name, have.tags)
	}
	if says := shared(groupThing+" "+have.name, have.tags); says != "" {
		return nil, problem(OthersInGroup, "%s", says)
	}
	found, err := c.contents(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if !o.owns(f.tags) {
			return nil, problem(OthersInGroup, "resource group %s has something that does not bear the tag %s, and would be deleted with it: %s %s",
				have.name, o.tag, f.kind, f.name)
		}
		if says := shared(f.kind+" "+f.name, f.tags); says != "" {
			return nil, problem(OthersInGroup, "resource group %s has something of somebody else in it, and would be deleted with it: %s", have.name, says)
		}
	}
	return []cloud.Step{{Key: "delete", Line: "Deleted resource group " + have.name, Call: func(ctx context.Context) (cloud.Answer, error) {
		_, err := arm.Send(ctx, c.Client, "Microsoft.Resources/subscriptions/resourceGroups/delete", func(ctx context.Context) (armresources.ResourceGroupsClientDeleteResponse, error) {
			poller, err := c.Groups.BeginDelete(ctx, name, nil)
			if err != nil {
				return armresources.ResourceGroupsClientDeleteResponse{}, err
			}
			return poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: groupPoll})
		})
		return arm.Gone(err)
	}}}, nil
}
