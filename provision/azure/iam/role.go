package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const roleThing = "custom role"

// roleState is a role as Azure shows it.
type roleState struct {
	id, guid, name, description string
	scopes                      []string // where it may be assigned
	actions, dataActions        []string
	denied                      []string // what is taken out of these, which nobody asks for
}

// roleAnswer is a role in an answer of Azure's.
type roleAnswer struct {
	ID         string
	Properties struct {
		RoleName, Description string
		AssignableScopes      []string
		Permissions           []struct{ Actions, DataActions, NotActions, NotDataActions []string }
	}
}

func (a roleAnswer) state() roleState {
	p := a.Properties
	s := roleState{id: a.ID, guid: last(a.ID), name: p.RoleName, description: p.Description, scopes: p.AssignableScopes}
	for _, m := range p.Permissions {
		s.actions, s.dataActions = append(s.actions, m.Actions...), append(s.dataActions, m.DataActions...)
		s.denied = append(append(s.denied, m.NotActions...), m.NotDataActions...)
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
func (r *Run) readRoles(ctx context.Context, name string) (all roleList, err error) {
	at := roles.At(r.roleID(""))
	if name != "" {
		at.Filter = "roleName eq '" + strings.ReplaceAll(name, "'", "''") + "'"
	}
	list, err := arm.List[roleAnswer](ctx, r.Client, at)
	for _, a := range list {
		all = append(all, a.state())
	}
	return all, err
}

// readRole returns nil for a role that is not there.
func (r *Run) readRole(ctx context.Context, name string) (*roleState, error) {
	roles, err := r.readRoles(ctx, name)
	return roles.find(name), err
}

func (r *Run) scope() string { return "/subscriptions/" + r.Subscription }

// roleID returns the ID of a role of the subscription; without a GUID, where they are listed.
func (r *Run) roleID(guid string) string {
	return strings.TrimSuffix(r.scope()+"/providers/Microsoft.Authorization/roleDefinitions/"+guid, "/")
}

// newRole returns the custom role of an identity as it is made. Its GUID is the same in every run.
func (r *Run) newRole(i Identity) roleState {
	id := guid(r.scope(), "roleDefinitions", i.Name)
	return roleState{id: r.roleID(id), guid: id, name: i.Name, description: r.Owner.description,
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
	given := func(list []string) []string { return append([]string{}, list...) } // Azure takes no null for a list
	put := r.Put(roles.At(r.roleID(want.guid)), map[string]any{"properties": map[string]any{
		"roleName": want.name, "description": want.description, "type": "CustomRole", "assignableScopes": want.scopes,
		"permissions": []any{map[string]any{"actions": given(want.actions), "dataActions": given(want.dataActions)}},
	}}, nil)
	return cloud.Step{Key: "put " + want.guid, Line: line, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
		answer, err := put(ctx)
		if arm.HasCode(err, "RoleDefinitionWithSameNameExists") { // or it was deleted a moment ago (OCPBUGS-63714)
			return cloud.NotYet, arm.Refuse(arm.NameTaken, "another subscription of the tenant has a custom role %s, and such names are unique in a tenant (%w)",
				want.name, err)
		}
		return answer, err
	}}
}

// planDeleteRole plans to delete a custom role.
func (r *Run) planDeleteRole(have roleState) plan.Stage {
	return r.API.Delete(plan.Change{Thing: roleThing, Name: have.name}, cloud.Step{Key: "delete",
		Line: fmt.Sprintf("Deleted custom role %s %s", have.name, have.id), Call: r.Delete(roles.At(r.roleID(have.guid)))})
}
