package iam

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const groupThing = "resource group"

// groupState is a resource group as Azure shows it.
type groupState struct {
	ID, Name, Location string
	Tags               map[string]string
}

// readGroup returns nil for a group that is not there.
func (r *Run) readGroup(ctx context.Context, name string) (*groupState, error) {
	return arm.Get[groupState](ctx, r.Client, groups.At(r.O.GroupID(name)))
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
	want, id := r.Owner.tags(r.O.Tags), r.O.GroupID(name)
	if have == nil {
		_, diff := missingTags(nil, want)
		return []cloud.Step{{Key: "put", Line: "Created resource group " + id, Diff: append([]string{"+ region " + r.O.Region}, diff...),
			Call: r.Put(groups.At(id), map[string]any{"location": r.O.Region, "tags": want}, nil)}}, nil
	}
	switch {
	case location(have.Location) != location(r.O.Region):
		return nil, fmt.Errorf("resource group %s is in the region %s, and a group does not move to %s: choose that region, or another group",
			have.Name, have.Location, r.O.Region)
	case !r.Owner.owns(have.Tags) && !r.O.Adopt:
		return nil, r.Owner.refuse(groupThing+" "+have.Name, have.Tags)
	}
	return r.tagSteps(id, "Updated tags of resource group "+have.ID, have.Tags, want), nil
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
	if !r.Owner.owns(have.Tags) {
		return nil, r.Owner.refuse(groupThing+" "+have.Name, have.Tags)
	}
	if says := shared(groupThing+" "+have.Name, have.Tags); says != "" {
		return nil, arm.Refuse(arm.OthersInGroup, "%s", says)
	}
	inside := contents.At(r.O.GroupID(r.O.OIDCGroup) + "/resources") // to a group that was just read, no 404 means that it is empty
	found, err := arm.List[struct {
		Type, Name string
		Tags       map[string]string
	}](ctx, r.Client, inside)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		what := f.Type + " " + f.Name
		if !r.Owner.owns(f.Tags) || shared(what, f.Tags) != "" {
			return nil, arm.Refuse(arm.OthersInGroup, "resource group %s has something in it that belongs not only to %s, and would be deleted with it: %s",
				have.Name, r.Owner.Tag, what)
		}
	}
	call := r.Delete(groups.At(r.O.GroupID(r.O.OIDCGroup)))
	return []cloud.Step{{Key: "delete", Line: "Deleted resource group " + have.Name, Call: call}}, nil
}
