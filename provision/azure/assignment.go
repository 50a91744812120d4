package azure

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const assignmentThing = "role assignments of"

// assignmentState is an assignment as Azure shows it.
type assignmentState struct {
	id, name, scope string
	role            string // the ID of the role
	principal       string
}

// key is what an assignment binds: Azure takes no second one of the same, and gives IDs in varying letter case.
func (a assignmentState) key() string {
	return folded(a.scope) + "\n" + last(a.role) + "\n" + folded(a.principal)
}

// ours reports whether keypost made the assignment: its name is made of what it binds.
func (a assignmentState) ours() bool { return sameName(a.name, assignmentName(a)) }

func assignmentName(a assignmentState) string { return guid("roleAssignments", a.key()) }

// within reports whether a scope is in the subscription: inherited assignments, of a management group, are listed with its own.
func (c *client) within(scope string) bool {
	return strings.HasPrefix(folded(scope)+"/", folded(c.scope())+"/")
}

// assignmentsTo returns those that bind a principal directly: a filter "assignedTo", as ccoctl's, would also find what the groups
// that it is in have.
func (c *client) assignmentsTo(ctx context.Context, principal string) ([]assignmentState, error) {
	filter := url.PathEscape("principalId eq '" + principal + "'") // this call of the SDK's puts it into the URL as it is
	list, err := c.readAssignments(ctx, &armauthorization.RoleAssignmentsClientListForSubscriptionOptions{Filter: &filter})
	if err != nil {
		return nil, err
	}
	return c.boundTo(list, principal)
}

// boundTo returns the assignments of a principal. It refuses one of the subscription that has another ID than its scope and its name
// make: what such an ID names would be deleted, whatever that is.
func (c *client) boundTo(list []assignmentState, principal string) ([]assignmentState, error) {
	own := slices.DeleteFunc(slices.Clone(list), func(a assignmentState) bool { return !sameName(a.principal, principal) })
	for _, a := range own {
		id := a.scope + "/providers/Microsoft.Authorization/roleAssignments/" + a.name
		sound := isScope(folded(a.scope)) && arm.IsGUID(a.name) && sameName(a.id, id)
		if c.within(a.scope) && !sound {
			return nil, fmt.Errorf("a role assignment of principal %s at %q has the ID %q in Azure's answer, which is none of an assignment there: see what is between here and Azure",
				principal, a.scope, a.id)
		}
	}
	return own, nil
}

// readAssignments returns those of the subscription, of all principals if the options have no filter.
func (c *client) readAssignments(ctx context.Context, options *armauthorization.RoleAssignmentsClientListForSubscriptionOptions) ([]assignmentState, error) {
	return arm.All(ctx, arm.PagesOf(c.Client, "Microsoft.Authorization/roleAssignments/read",
		c.Assignments.NewListForSubscriptionPager(options)), func(p armauthorization.RoleAssignmentsClientListForSubscriptionResponse) []*armauthorization.RoleAssignment {
		return p.Value
	}, stateOfAssignment)
}

func stateOfAssignment(v armauthorization.RoleAssignment) assignmentState {
	s := assignmentState{id: arm.Deref(v.ID), name: arm.Deref(v.Name)}
	if q := v.Properties; q != nil {
		s.scope, s.role, s.principal = arm.Deref(q.Scope), arm.Deref(q.RoleDefinitionID), arm.Deref(q.PrincipalID)
	}
	return s
}

// wantedAssignments returns the assignments that an identity should have. Its principal may not be known yet.
func (c *client) wantedAssignments(i identity) []wantedAssignment {
	principal := ""
	if s := c.known(i.name); s != nil {
		principal = s.principal
	}
	roles := i.roles
	if i.custom() {
		roles = append([]string{i.name}, roles...)
	}
	var list []wantedAssignment
	for _, role := range roles {
		for _, scope := range i.scopes {
			list = append(list, wantedAssignment{role, assignmentState{scope: scope, role: c.roleID(role), principal: principal}})
		}
	}
	return list
}

// wantedAssignment is an assignment with the name of its role.
type wantedAssignment struct {
	roleName string
	assignmentState
}

// planAssignments plans to add what an identity lacks, and in another stage to take away what nobody asked for. In said are no
// stages.
func (c *client) planAssignments(i identity, have []assignmentState, t taking) (add, remove plan.Stage, said plan.Plan) {
	read := func(ctx context.Context) ([]assignmentState, error) { return c.assignmentsOf(ctx, i.name) }
	change := plan.Change{Verb: plan.Update, Thing: assignmentThing, Name: i.name}
	added := change
	if len(have) == 0 {
		added.Verb = plan.Create
	}
	add = c.stage(added, c.addSteps(i, have), func(ctx context.Context) ([]cloud.Step, error) {
		if c.isBare(hangsAssigned, i.name) {
			return c.addSteps(i, nil), nil
		}
		have, err := read(ctx)
		return c.addSteps(i, have), err
	})
	lost, extra := c.surplus(i, have, t)
	said.Extra = extra
	for _, a := range lost {
		if !contains(t.scopes, a.scope) { // perhaps a flag was forgotten
			said.Warnings = append(said.Warnings, fmt.Sprintf("identity %s no longer has the role %s at %s", i.name, c.roleName(a.role), a.scope))
		}
	}
	remove = c.stage(change, c.removeSteps(lost), then(read, func(have []assignmentState) ([]cloud.Step, error) {
		lost, _ := c.surplus(i, have, t)
		return c.removeSteps(lost), nil
	}))
	for _, w := range c.wantedAssignments(i) {
		if binds(have, w.assignmentState) {
			said.Notes = append(said.Notes, fmt.Sprintf("Found existing role assignment %s for user-assigned managed identity with principal ID %s at scope %s", w.roleName, w.principal, w.scope))
		}
	}
	return add, remove, said
}

// assignmentsOf returns the direct assignments of an identity. Before a principal is known, there are none.
func (c *client) assignmentsOf(ctx context.Context, identity string) ([]assignmentState, error) {
	s := c.known(identity)
	if s == nil {
		return nil, nil
	}
	if err := c.check(*s); err != nil {
		return nil, err
	}
	return c.assignmentsTo(ctx, s.principal)
}

// binds reports whether a list has an assignment of the same, which is what there is or what is wanted.
func binds[A interface{ key() string }](list []A, a assignmentState) bool {
	return slices.ContainsFunc(list, func(b A) bool { return b.key() == a.key() })
}

// addSteps returns the steps that make what is missing.
func (c *client) addSteps(i identity, have []assignmentState) []cloud.Step {
	var steps []cloud.Step
	for _, w := range c.wantedAssignments(i) {
		if binds(have, w.assignmentState) {
			continue
		}
		principal := w.principal
		if principal == "" {
			principal = "(not known yet)"
		}
		steps = append(steps, cloud.Step{
			Key:  w.key(),
			Diff: []string{fmt.Sprintf("+ role %s at %s", w.roleName, w.scope)},
			Line: fmt.Sprintf("Created role assignment for role %s with user-assigned managed identity principal ID %s at scope %s", w.roleName, principal, w.scope),
			Call: func(ctx context.Context) (cloud.Answer, error) {
				return arm.Answer(c.putAssignment(ctx, w.assignmentState))
			},
		})
	}
	return steps
}

// putAssignment makes an assignment. The type of the principal is Microsoft's cure for a directory that does not know it yet
// (https://learn.microsoft.com/azure/role-based-access-control/role-assignments-rest).
func (c *client) putAssignment(ctx context.Context, a assignmentState) error {
	if a.principal == "" {
		return fmt.Errorf("the principal that is to have a role at %s is not known", a.scope)
	}
	kind := armauthorization.PrincipalTypeServicePrincipal
	const action = "Microsoft.Authorization/roleAssignments/write"
	_, err := arm.Send(ctx, c.Client, action, func(ctx context.Context) (armauthorization.RoleAssignmentsClientCreateResponse, error) {
		return c.Assignments.Create(ctx, strings.TrimPrefix(a.scope, "/"), assignmentName(a), armauthorization.RoleAssignmentCreateParameters{
			Properties: &armauthorization.RoleAssignmentProperties{RoleDefinitionID: &a.role, PrincipalID: &a.principal, PrincipalType: &kind}}, nil)
	})
	return err
}

// taking says what becomes of assignments that nobody asked for.
type taking struct {
	scopes []string // of the installation
	prune  bool     // they are taken away
}

// surplus returns the assignments of an identity that nobody asked for: those to be taken away, or a line for each that stays. A run
// with fewer flags than the one before must not cut off an operator, so that these stay unless it is asked for. Of what is at a
// scope that is not the installation's, only what keypost made counts: it was asked for once, with another scope.
func (c *client) surplus(i identity, have []assignmentState, t taking) (lost []assignmentState, extra []string) {
	wanted := c.wantedAssignments(i)
	for _, a := range have {
		if binds(wanted, a) || !c.within(a.scope) || !contains(t.scopes, a.scope) && !a.ours() {
			continue
		}
		if t.prune {
			lost = append(lost, a)
			continue
		}
		extra = append(extra, fmt.Sprintf("identity %s has the role %s at %s, which nobody asked for; --prune takes it away", i.name, c.roleName(a.role), a.scope))
	}
	return lost, extra
}

// removeSteps returns the steps that delete assignments.
func (c *client) removeSteps(lost []assignmentState) []cloud.Step {
	var steps []cloud.Step
	for _, a := range lost {
		role := c.roleName(a.role)
		steps = append(steps, cloud.Step{
			Key: a.key(), Diff: []string{fmt.Sprintf("- role %s at %s", role, a.scope)},
			Line: fmt.Sprintf("Deleted role assignment for role %s with user-assigned managed identity principal ID %s at scope %s", role, a.principal, a.scope),
			Call: func(ctx context.Context) (cloud.Answer, error) {
				_, err := arm.Send(ctx, c.Client, "Microsoft.Authorization/roleAssignments/delete", func(ctx context.Context) (armauthorization.RoleAssignmentsClientDeleteByIDResponse, error) {
					return c.Assignments.DeleteByID(ctx, strings.TrimPrefix(a.id, "/"), nil)
				})
				return arm.Gone(err)
			},
		})
	}
	return steps
}

// deletesAssignment returns the command line that deletes an assignment. Its ID has the names of others in it.
func deletesAssignment(a assignmentState) string {
	return text.Quoted("az", "role", "assignment", "delete", "--ids", a.id)
}

// planDeleteAssignments plans to delete whatever binds an identity directly, before the identity itself: Azure would keep it,
// with a principal that is nobody. What is outside of the subscription stays, with a note.
func (c *client) planDeleteAssignments(identity string, have []assignmentState) (plan.Stage, []string) {
	inside := func(list []assignmentState) (in []assignmentState, notes []string) {
		for _, a := range list {
			if c.within(a.scope) {
				in = append(in, a)
			} else {
				notes = append(notes, fmt.Sprintf("The role %s of identity %s at %s stays, as it is outside of subscription %s; what deletes it: %s",
					c.roleName(a.role), identity, a.scope, c.Subscription, deletesAssignment(a)))
			}
		}
		return in, notes
	}
	change := plan.Change{Verb: plan.Delete, Thing: assignmentThing, Name: identity}
	in, notes := inside(have)
	read := func(ctx context.Context) ([]assignmentState, error) { return c.assignmentsOf(ctx, identity) }
	return c.stage(change, c.removeSteps(in), then(read, func(have []assignmentState) ([]cloud.Step, error) {
		in, _ := inside(have)
		return c.removeSteps(in), nil
	})), notes
}
