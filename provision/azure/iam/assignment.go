package iam

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const assignmentThing = "role assignments of"

// assignmentState is an assignment as Azure shows it.
type assignmentState struct {
	ID, Name   string
	Properties binding
}

// binding is what an assignment binds: a role, by its ID, to a principal.
type binding struct{ Scope, RoleDefinitionID, PrincipalID string }

// same reports whether two assignments bind the same: Azure takes no second one of the same, and gives IDs in varying letter case.
func (b binding) same(other binding) bool { return b.key() == other.key() }

func (b binding) key() string {
	return Folded(b.Scope) + "\n" + last(b.RoleDefinitionID) + "\n" + Folded(b.PrincipalID)
}

// name is the name under which keypost makes the assignment: it is made of what it binds.
func (b binding) name() string { return guid("roleAssignments", b.key()) }

// within reports whether a scope is in the subscription: inherited assignments, of a management group, are listed with its own.
func (r *Run) within(scope string) bool {
	return strings.HasPrefix(Folded(scope)+"/", Folded(r.scope())+"/")
}

// readAssignments returns those of the subscription that bind a principal directly, or of all principals if it is empty. A filter
// "assignedTo", as ccoctl's, would also find what the groups have that it is in.
func (r *Run) readAssignments(ctx context.Context, principal string) ([]assignmentState, error) {
	at := assignments.At(r.scope() + assignmentsPath)
	if principal != "" {
		at.Filter = "principalId eq '" + principal + "'"
	}
	return arm.List[assignmentState](ctx, r.Client, at)
}

const assignmentsPath = "/providers/Microsoft.Authorization/roleAssignments"

// assignmentsOf returns the direct assignments of an identity. Before a principal is known, there are none.
func (r *Run) assignmentsOf(ctx context.Context, identity string) ([]assignmentState, error) {
	s := r.known(identity)
	if s == nil || s.Properties.PrincipalID == "" {
		return nil, nil
	}
	return r.readAssignments(ctx, s.Properties.PrincipalID)
}

// bindings are the assignments of one identity: what they are compared with.
type bindings struct {
	*Run
	identity string
	grants   []grant
	roles    roleList
	scopes   []string // of the installation
}

// grant is a role that an identity should have, and where.
type grant struct{ id, scope string }

// wanted returns the assignments that the identity should have. Its principal may not be known yet.
func (b bindings) wanted() []binding {
	principal := ""
	if s := b.known(b.identity); s != nil {
		principal = s.Properties.PrincipalID
	}
	var list []binding
	for _, g := range b.grants {
		list = append(list, binding{g.scope, g.id, principal})
	}
	return list
}

// read returns the steps from the assignments that there are.
func (b bindings) read(steps func([]assignmentState) []cloud.Step) cloud.Remaining {
	return func(ctx context.Context) ([]cloud.Step, error) {
		have, err := b.assignmentsOf(ctx, b.identity)
		return steps(have), err
	}
}

// plan plans to add what an identity does not have, and in another stage to take away what nobody asked for. said has no stages.
func (b bindings) plan(have []assignmentState) (add, remove plan.Stage, said plan.Plan) {
	change := plan.Change{Verb: plan.Update, Thing: assignmentThing, Name: b.identity}
	surplus := b.surplus(have)
	if b.O.Prune {
		remove = b.API.Stage(change, b.removeSteps(surplus), b.read(func(have []assignmentState) []cloud.Step { return b.removeSteps(b.surplus(have)) }))
	}
	if len(have) == 0 {
		change.Verb = plan.Create
	}
	add = b.API.Stage(change, b.addSteps(have), b.read(b.addSteps))
	for _, s := range surplus {
		a := s.Properties
		switch {
		case !b.O.Prune:
			said.Extra = append(said.Extra, fmt.Sprintf("identity %s has the role %s at %s, which nobody asked for; --prune takes it away",
				b.identity, b.roles.name(a.RoleDefinitionID), a.Scope))
		case !contains(b.scopes, a.Scope): // perhaps a flag was forgotten
			said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s no longer has the role %s at %s",
				b.identity, b.roles.name(a.RoleDefinitionID), a.Scope))
		}
	}
	for _, w := range b.wanted() {
		if binds(have, w) {
			said.Notes = append(said.Notes, fmt.Sprintf("Found existing role assignment %s for user-assigned managed identity with principal ID %s at scope %s",
				b.roles.name(w.RoleDefinitionID), w.PrincipalID, w.Scope))
		}
	}
	return add, remove, said
}

// binds reports whether one of a list binds the same.
func binds(list []assignmentState, w binding) bool {
	return slices.ContainsFunc(list, func(a assignmentState) bool { return a.Properties.same(w) })
}

// addSteps returns the steps that make what is missing. The type of the principal is Microsoft's cure for a directory that does not know it
// yet (https://learn.microsoft.com/azure/role-based-access-control/role-assignments-rest).
func (b bindings) addSteps(have []assignmentState) []cloud.Step {
	var steps []cloud.Step
	for _, w := range b.wanted() {
		if binds(have, w) {
			continue
		}
		role := b.roles.name(w.RoleDefinitionID)
		steps = append(steps, cloud.Step{
			Key:  w.key(),
			Diff: []string{fmt.Sprintf("+ role %s at %s", role, w.Scope)},
			Line: fmt.Sprintf("Created role assignment for role %s with user-assigned managed identity principal ID %s at scope %s", role,
				cmp.Or(w.PrincipalID, "(not known yet)"), w.Scope),
			Call: b.Put(assignments.At(w.Scope+assignmentsPath+"/"+w.name()), map[string]any{"properties": map[string]string{
				"roleDefinitionId": w.RoleDefinitionID, "principalId": w.PrincipalID, "principalType": "ServicePrincipal"}}, nil),
		})
	}
	return steps
}

// surplus returns the assignments of an identity that nobody asked for. Without prune these stay: a run with fewer flags than the one
// before must not cut off an operator. Of what is at a scope that is not the installation's, only what keypost made counts: it was
// asked for once, with another scope.
func (b bindings) surplus(have []assignmentState) (surplus []assignmentState) {
	wanted := b.wanted()
	for _, a := range have {
		p := a.Properties
		ours := contains(b.scopes, p.Scope) || SameName(a.Name, p.name())
		if ours && b.within(p.Scope) && !slices.ContainsFunc(wanted, p.same) {
			surplus = append(surplus, a)
		}
	}
	return surplus
}

// removeSteps returns the steps that delete assignments.
func (b bindings) removeSteps(lost []assignmentState) []cloud.Step {
	var steps []cloud.Step
	for _, a := range lost {
		p, role := a.Properties, b.roles.name(a.Properties.RoleDefinitionID)
		steps = append(steps, cloud.Step{
			Key: p.key(), Diff: []string{fmt.Sprintf("- role %s at %s", role, p.Scope)},
			Line: fmt.Sprintf("Deleted role assignment for role %s with user-assigned managed identity principal ID %s at scope %s",
				role, p.PrincipalID, p.Scope),
			Call: b.Delete(assignments.At(a.ID)),
		})
	}
	return steps
}

// planDelete plans to delete whatever binds an identity directly, before the identity itself: Azure would keep it, with a principal
// that is nobody. What is outside of the subscription stays.
func (b bindings) planDelete(have []assignmentState) plan.Stage {
	inside := slices.DeleteFunc(slices.Clone(have), func(a assignmentState) bool { return !b.within(a.Properties.Scope) })
	return b.API.Delete(plan.Change{Thing: assignmentThing, Name: b.identity}, b.removeSteps(inside)...)
}
