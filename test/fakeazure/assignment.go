package fakeazure

import (
	"regexp"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

const assignmentType = "Microsoft.Authorization/roleAssignments"

func (a Assignment) json() map[string]any {
	at := a.Created.UTC().Format(time.RFC3339Nano)
	return map[string]any{"id": a.ID, "name": a.Name, "type": assignmentType, "properties": map[string]any{"roleDefinitionId": a.Role,
		"principalId": a.Principal, "principalType": a.PrincipalType, "scope": a.Scope, "description": a.Description, "createdOn": at, "updatedOn": at}}
}

// listAssignments gives those at a scope, above and below it
// (https://learn.microsoft.com/azure/role-based-access-control/role-assignments-list-rest).
func listAssignments(q *request) (answer, error) {
	asked, err := q.filter("principalId", "assignedTo", "atScope")
	if err != nil {
		return answer{}, err
	}
	principal, direct := asked["principalId"]
	member, transitive := asked["assignedTo"]
	_, above := asked["atScope"]
	who := q.seen.principals(member)
	var items []any
	for _, a := range fakecloud.Sorted(q.seen.assignments) {
		there := within(q.vars["scope"], a.Scope) || !above && within(a.Scope, q.vars["scope"])
		if there && (!direct || strings.EqualFold(a.Principal, principal)) && (!transitive || who[strings.ToLower(a.Principal)]) {
			items = append(items, a.json())
		}
	}
	return q.page(items)
}

func putAssignment(q *request) (answer, error) {
	var in struct {
		Properties struct{ RoleDefinitionID, PrincipalID, PrincipalType, Description string }
	}
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	p, name, scope := in.Properties, strings.ToLower(q.vars["name"]), q.vars["scope"]
	a := Assignment{ID: scope + "/providers/" + assignmentType + "/" + name, Name: name, Scope: scope, Role: p.RoleDefinitionID, Principal: p.PrincipalID,
		PrincipalType: p.PrincipalType, Description: p.Description, Created: q.now}
	if err := q.checkScope(scope); err != nil {
		return answer{}, err
	}
	if old, exists := q.world.assignments[name]; exists {
		return q.sameAssignment(old, a)
	}
	if err := q.checkRole(a); err != nil {
		return answer{}, err
	}
	var err error
	if a.PrincipalType, err = q.checkPrincipal(a); err != nil {
		return answer{}, err
	}
	for _, o := range q.world.assignments {
		if o.same(a) {
			return answer{}, conflict("RoleAssignmentExists", "The role assignment already exists. The ID of the conflicting role assignment is %s.", bare(o.Name))
		}
	}
	q.world.assignments = fakecloud.With(q.world.assignments, name, a)
	return created(a.json())
}

// same reports whether two assignments give the same role to the same principal at the same scope.
func (a Assignment) same(b Assignment) bool {
	return strings.EqualFold(a.Scope, b.Scope) && strings.EqualFold(a.Principal, b.Principal) && roleName(a.Role) == roleName(b.Role)
}

// sameAssignment answers a write under a name that is in use: nothing of an assignment can be changed.
func (q *request) sameAssignment(old, a Assignment) (answer, error) {
	if !old.same(a) {
		return answer{}, badRequest("RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
	}
	return ok(old.json())
}

// checkScope refuses an assignment at a group that is not there.
func (q *request) checkScope(scope string) error {
	m := regexp.MustCompile(`(?i)^(/subscriptions/[^/]+/resourceGroups/([^/]+))`).FindStringSubmatch(scope)
	if m == nil {
		return nil
	}
	if _, ok := q.world.groups[strings.ToLower(m[1])]; !ok {
		return noGroup(m[2])
	}
	return nil
}

func (q *request) checkRole(a Assignment) error {
	if _, found := q.seen.definitions[roleName(a.Role)]; !found {
		return noDefinition(roleName(a.Role))
	}
	return nil
}

// checkPrincipal looks the principal up, unless the assignment says what it is; it returns that
// (https://learn.microsoft.com/azure/role-based-access-control/troubleshooting: new service principals).
func (q *request) checkPrincipal(a Assignment) (string, error) {
	kind := ""
	for _, i := range q.world.identities {
		if strings.EqualFold(i.PrincipalID, a.Principal) && !q.now.Before(i.Created.Add(q.PrincipalDelay)) {
			kind = "ServicePrincipal"
		}
	}
	for group := range q.world.members {
		if strings.EqualFold(group, a.Principal) {
			kind = "Group"
		}
	}
	if strings.EqualFold(a.Principal, callerPrincipal(q.Options)) {
		kind = "ServicePrincipal"
	}
	switch {
	case kind == "" && a.PrincipalType == "":
		return "", badRequest("PrincipalNotFound", "Principal %s does not exist in the directory %s. Check that you have the correct principal ID. If you are "+
			"creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role "+
			"assignment principalType property to a value, such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype",
			bare(a.Principal), q.Tenant)
	case kind != "" && a.PrincipalType != "" && !strings.EqualFold(kind, a.PrincipalType):
		return "", badRequest("UnmatchedPrincipalType", "The PrincipalId '%s' has type '%s' , which is different from specified PrinciaplType '%s'.",
			bare(a.Principal), kind, a.PrincipalType)
	}
	if kind == "" {
		kind = a.PrincipalType
	}
	return kind, nil
}

func deleteAssignment(q *request) (answer, error) {
	name := strings.ToLower(q.vars["name"])
	a, found := q.world.assignments[name]
	if !found || !strings.EqualFold(a.Scope, q.vars["scope"]) {
		return nothing()
	}
	q.world.assignments = fakecloud.Without(q.world.assignments, name)
	return ok(a.json())
}
