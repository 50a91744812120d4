package iam

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const (
	assignmentThing  = "role assignments of"
	assignmentAction = "Microsoft.Authorization/roleAssignments/"
)

// assignmentState is an assignment as Azure shows it, or as it should be.
type assignmentState struct {
	id, name, scope string
	role            string // the ID of the role
	principal       string
}

// key is what an assignment binds: Azure takes no second one of the same, and gives IDs in varying letter case.
func (a assignmentState) key() string {
	return Folded(a.scope) + "\n" + last(a.role) + "\n" + Folded(a.principal)
}

// ours reports whether keypost made the assignment: its name is made of what it binds.
func (a assignmentState) ours() bool { return SameName(a.name, assignmentName(a)) }

func assignmentName(a assignmentState) string { return guid("roleAssignments", a.key()) }

// within reports whether a scope is in the subscription: inherited assignments, of a management group, are listed with its own.
func (r *Run) within(scope string) bool {
	return strings.HasPrefix(Folded(scope)+"/", Folded(r.scope())+"/")
}

// readAssignments returns those of the subscription that bind a principal directly, or of all principals if it is empty. A filter
// "assignedTo", as ccoctl's, would also find what the groups have that it is in.
func (r *Run) readAssignments(ctx context.Context, principal string) ([]assignmentState, error) {
	options := &armauthorization.RoleAssignmentsClientListForSubscriptionOptions{}
	if principal != "" {
		filter := url.PathEscape("principalId eq '" + principal + "'") // this call of the SDK's puts it into the URL as it is
		options.Filter = &filter
	}
	return arm.All(ctx, arm.PagesOf(r.Client, assignmentAction+"read", r.Assignments.NewListForSubscriptionPager(options)),
		func(p armauthorization.RoleAssignmentsClientListForSubscriptionResponse) []*armauthorization.RoleAssignment {
			return p.Value
		},
		func(v armauthorization.RoleAssignment) assignmentState {
			q := arm.Deref(v.Properties)
			return assignmentState{arm.Deref(v.ID), arm.Deref(v.Name), arm.Deref(q.Scope), arm.Deref(q.RoleDefinitionID), arm.Deref(q.PrincipalID)}
		})
}

// assignmentsOf returns the direct assignments of an identity. Before a principal is known, there are none.
func (r *Run) assignmentsOf(ctx context.Context, identity string) ([]assignmentState, error) {
	s := r.known(identity)
	if s == nil || s.principal == "" {
		return nil, nil
	}
	return r.readAssignments(ctx, s.principal)
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
func (b bindings) wanted() []assignmentState {
	principal := ""
	if s := b.known(b.identity); s != nil {
		principal = s.principal
	}
	var list []assignmentState
	for _, g := range b.grants {
		list = append(list, assignmentState{scope: g.scope, role: g.id, principal: principal})
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
	for _, a := range surplus {
		switch {
		case !b.O.Prune:
			said.Extra = append(said.Extra, fmt.Sprintf("identity %s has the role %s at %s, which nobody asked for; --prune takes it away",
				b.identity, b.roles.name(a.role), a.scope))
		case !contains(b.scopes, a.scope): // perhaps a flag was forgotten
			said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s no longer has the role %s at %s", b.identity, b.roles.name(a.role), a.scope))
		}
	}
	for _, w := range b.wanted() {
		if binds(have, w) {
			said.Notes = append(said.Notes, fmt.Sprintf("Found existing role assignment %s for user-assigned managed identity with principal ID %s at scope %s",
				b.roles.name(w.role), w.principal, w.scope))
		}
	}
	return add, remove, said
}

// binds reports whether a list has an assignment of the same.
func binds(list []assignmentState, a assignmentState) bool {
	return slices.ContainsFunc(list, func(b assignmentState) bool { return b.key() == a.key() })
}

// addSteps returns the steps that make what is missing. The type of the principal is Microsoft's cure for a directory that does not know it
// yet (https://learn.microsoft.com/azure/role-based-access-control/role-assignments-rest).
func (b bindings) addSteps(have []assignmentState) []cloud.Step {
	var steps []cloud.Step
	kind := armauthorization.PrincipalTypeServicePrincipal
	for _, w := range b.wanted() {
		if binds(have, w) {
			continue
		}
		role := b.roles.name(w.role)
		in := armauthorization.RoleAssignmentCreateParameters{Properties: &armauthorization.RoleAssignmentProperties{
			RoleDefinitionID: &w.role, PrincipalID: &w.principal, PrincipalType: &kind}}
		steps = append(steps, cloud.Step{
			Key:  w.key(),
			Diff: []string{fmt.Sprintf("+ role %s at %s", role, w.scope)},
			Line: fmt.Sprintf("Created role assignment for role %s with user-assigned managed identity principal ID %s at scope %s", role, cmp.Or(w.principal, "(not known yet)"), w.scope),
			Call: b.Writing(assignmentAction+"write", func(ctx context.Context) (any, error) {
				return b.Assignments.Create(ctx, strings.TrimPrefix(w.scope, "/"), assignmentName(w), in, nil)
			}),
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
		if !binds(wanted, a) && b.within(a.scope) && (contains(b.scopes, a.scope) || a.ours()) {
			surplus = append(surplus, a)
		}
	}
	return surplus
}

// removeSteps returns the steps that delete assignments.
func (b bindings) removeSteps(lost []assignmentState) []cloud.Step {
	var steps []cloud.Step
	for _, a := range lost {
		role := b.roles.name(a.role)
		steps = append(steps, cloud.Step{
			Key: a.key(), Diff: []string{fmt.Sprintf("- role %s at %s", role, a.scope)},
			Line: fmt.Sprintf("Deleted role assignment for role %s with user-assigned managed identity principal ID %s at scope %s", role, a.principal, a.scope),
			Call: b.Deleting(assignmentAction+"delete", func(ctx context.Context) (any, error) {
				return b.Assignments.DeleteByID(ctx, strings.TrimPrefix(a.id, "/"), nil)
			}),
		})
	}
	return steps
}

// inside returns those of the subscription.
func (r *Run) inside(list []assignmentState) []assignmentState {
	return slices.DeleteFunc(slices.Clone(list), func(a assignmentState) bool { return !r.within(a.scope) })
}

// planDelete plans to delete whatever binds an identity directly, before the identity itself: Azure would keep it, with a principal
// that is nobody. What is outside of the subscription stays.
func (b bindings) planDelete(have []assignmentState) plan.Stage {
	return b.API.Stage(plan.Change{Verb: plan.Delete, Thing: assignmentThing, Name: b.identity}, b.removeSteps(b.inside(have)),
		b.read(func(have []assignmentState) []cloud.Step { return b.removeSteps(b.inside(have)) }))
}
