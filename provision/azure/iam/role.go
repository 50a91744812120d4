package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const (
	roleThing  = "custom role"
	roleAction = "Microsoft.Authorization/roleDefinitions/"
)

// roleState is a role as Azure shows it.
type roleState struct {
	id, guid, name, description string
	scopes                      []string // where it may be assigned
	actions, dataActions        []string
	denied                      []string // what is taken out of these, which nobody asks for
}

func stateOfRole(d armauthorization.RoleDefinition) roleState {
	p := arm.Deref(d.Properties)
	s := roleState{id: arm.Deref(d.ID), guid: last(arm.Deref(d.ID)), name: arm.Deref(p.RoleName), description: arm.Deref(p.Description),
		scopes: arm.Values(p.AssignableScopes)}
	for _, m := range p.Permissions {
		s.actions, s.dataActions = append(s.actions, arm.Values(m.Actions)...), append(s.dataActions, arm.Values(m.DataActions)...)
		s.denied = append(append(s.denied, arm.Values(m.NotActions)...), arm.Values(m.NotDataActions)...)
	}
	return s
}

// roleList are roles of the subscription, Azure's own and custom ones.
type roleList []roleState

// find returns the role of a name, which is unique in the tenant whatever its letter case; nil if it is not there.
func (l roleList) find(name string) *roleState {
	for _, r := range l {
		if SameName(r.name, name) {
			return &r
		}
	}
	return nil
}

// name returns the name of a role by its ID; the GUID of one that is gone.
func (l roleList) name(id string) string {
	for _, r := range l {
		if r.guid == last(id) {
			return r.name
		}
	}
	return last(id)
}

// readRoles returns the roles of the subscription, only the one of a name if it is given.
func (r *Run) readRoles(ctx context.Context, name string) (roleList, error) {
	options := &armauthorization.RoleDefinitionsClientListOptions{}
	if name != "" {
		filter := "roleName eq '" + strings.ReplaceAll(name, "'", "''") + "'"
		options.Filter = &filter
	}
	return arm.All(ctx, arm.PagesOf(r.Client, roleAction+"read", r.Definitions.NewListPager(r.scope(), options)),
		func(p armauthorization.RoleDefinitionsClientListResponse) []*armauthorization.RoleDefinition {
			return p.Value
		}, stateOfRole)
}

// readRole returns nil for a role that is not there.
func (r *Run) readRole(ctx context.Context, name string) (*roleState, error) {
	roles, err := r.readRoles(ctx, name)
	return roles.find(name), err
}

func (r *Run) scope() string { return "/subscriptions/" + r.Subscription }

// newRole returns the custom role of an identity as it is made. Its GUID is the same in every run.
func (r *Run) newRole(i Identity) roleState {
	id := guid(r.scope(), "roleDefinitions", i.Name)
	return roleState{id: r.scope() + "/providers/Microsoft.Authorization/roleDefinitions/" + id, guid: id, name: i.Name, description: r.Owner.description,
		scopes: []string{r.scope()}, actions: i.Actions, dataActions: i.DataActions}
}

// planRole plans the custom role of an identity. The name of one that was deleted is free again after a minute, that of another
// subscription's never.
func (r *Run) planRole(i Identity, have *roleState) (plan.Plan, error) {
	api := r.API
	api.Consistency = time.Minute
	thing := cloud.Thing[*roleState]{
		Kind: roleThing, Name: i.Name, Missing: have == nil,
		Read:   func(ctx context.Context) (*roleState, error) { return r.readRole(ctx, i.Name) },
		Decide: decided(func(have *roleState) ([]cloud.Step, error) { return r.roleSteps(i, have) }),
	}
	if have != nil {
		thing.Found = fmt.Sprintf("Found existing customRole %s %s", i.Name, have.id)
	}
	return thing.Plan(api, have)
}

// roleSteps returns the steps from have to the custom role of i. A PUT replaces the whole role, which is written only if it
// allows something else.
func (r *Run) roleSteps(i Identity, have *roleState) ([]cloud.Step, error) {
	want := r.newRole(i)
	if have == nil {
		return []cloud.Step{r.putRole(want, fmt.Sprintf("Created customRole %s %s", i.Name, want.id), roleDiff(roleState{}, want))}, nil
	}
	if have.description != want.description && !r.O.Adopt {
		return nil, arm.Refuse(arm.NotOwned, "%s %s has the description %q and not %q, so something else made it", roleThing, i.Name, have.description, want.description)
	}
	want.id, want.guid, want.name = have.id, have.guid, have.name
	want.scopes = append(minus(have.scopes, want.scopes), want.scopes...)
	if !r.O.Prune {
		want.actions, want.dataActions = Distinct(slices.Concat(have.actions, i.Actions)), Distinct(slices.Concat(have.dataActions, i.DataActions))
	}
	diff := roleDiff(*have, want)
	if len(diff) == 0 {
		return nil, nil
	}
	return []cloud.Step{r.putRole(want, fmt.Sprintf("Updated customRole %s %s", i.Name, want.id), diff)}, nil
}

// roleDiff returns what differs, a line each. Azure compares actions without their case.
func roleDiff(have, want roleState) []string {
	var diff []string
	list := func(what string, have, want []string) {
		for _, a := range minus(have, want) {
			diff = append(diff, "- "+what+" "+a)
		}
		for _, a := range minus(want, have) {
			diff = append(diff, "+ "+what+" "+a)
		}
	}
	list("action", have.actions, want.actions)
	list("data action", have.dataActions, want.dataActions)
	list("exception", have.denied, nil)
	list("assignable scope", have.scopes, want.scopes)
	if have.id != "" && have.description != want.description {
		diff = append(diff, "- description "+have.description, "+ description "+want.description)
	}
	return diff
}

func (r *Run) putRole(want roleState, line string, diff []string) cloud.Step {
	kind := "CustomRole"
	in := armauthorization.RoleDefinition{Properties: &armauthorization.RoleDefinitionProperties{
		RoleName: &want.name, Description: &want.description, RoleType: &kind, AssignableScopes: addresses(want.scopes),
		Permissions: []*armauthorization.Permission{{Actions: addresses(want.actions), DataActions: addresses(want.dataActions)}},
	}}
	return cloud.Step{Key: "put " + want.guid, Line: line, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
		_, err := arm.Send(ctx, r.Client, roleAction+"write", func(ctx context.Context) (any, error) {
			return r.Definitions.CreateOrUpdate(ctx, r.scope(), want.guid, in, nil)
		})
		if arm.HasCode(err, "RoleDefinitionWithSameNameExists") { // or it was deleted a moment ago (OCPBUGS-63714)
			return cloud.NotYet, arm.Refuse(arm.NameTaken, "another subscription of the tenant has a custom role %s, and such names are unique in a tenant (%w)",
				want.name, err)
		}
		return arm.Answer(err)
	}}
}

func addresses(list []string) []*string {
	out := []*string{}
	for _, s := range list {
		out = append(out, &s)
	}
	return out
}

// planDeleteRole plans to delete a custom role.
func (r *Run) planDeleteRole(have roleState) plan.Stage {
	steps := func(have *roleState) ([]cloud.Step, error) {
		if have == nil {
			return nil, nil
		}
		if have.description != r.Owner.description {
			return nil, arm.Refuse(arm.NotOwned, "%s %s has the description %q by now and not %q", roleThing, have.name, have.description, r.Owner.description)
		}
		return []cloud.Step{{Key: "delete", Line: fmt.Sprintf("Deleted custom role %s %s", have.name, have.id),
			Call: r.Deleting(roleAction+"delete", func(ctx context.Context) (any, error) {
				return r.Definitions.Delete(ctx, r.scope(), have.guid, nil)
			})}}, nil
	}
	first, _ := steps(&have) // it is the owner's
	read := func(ctx context.Context) (*roleState, error) { return r.readRole(ctx, have.name) }
	return r.API.Stage(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: have.name}, first, cloud.After(read, steps))
}
