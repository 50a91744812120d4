package fakeazure

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

const definitionType = "Microsoft.Authorization/roleDefinitions"

// builtIn are a few of the roles that Azure has (https://learn.microsoft.com/azure/role-based-access-control/built-in-roles).
func builtIn() map[string]Definition {
	all := map[string]Definition{}
	add := func(name, role string, p Permission) {
		all[name] = Definition{ID: "/providers/" + definitionType + "/" + name, Name: name, RoleName: role, Description: role, Scopes: []string{"/"},
			Permissions: []Permission{p}, builtIn: true}
	}
	writes := []string{"Microsoft.Authorization/*/Delete", "Microsoft.Authorization/*/Write", "Microsoft.Authorization/elevateAccess/Action"}
	add("8e3af657-a8ff-443c-a75c-2fe8c4bcb635", "Owner", Permission{Actions: []string{"*"}})
	add("b24988ac-6180-42a0-ab88-20f7382dd24c", "Contributor", Permission{Actions: []string{"*"}, NotActions: writes})
	add("acdd72a7-3385-48ef-bd42-f606fba81ae7", "Reader", Permission{Actions: []string{"*/read"}})
	add("18d7d88d-d35e-4fb5-a5c3-7773c20a72d9", "User Access Administrator", Permission{Actions: []string{"*/read", "Microsoft.Authorization/*"}})
	add("f1a07417-d97a-45cb-824c-7a7467783830", "Managed Identity Operator", Permission{Actions: []string{identityType + "/*/read",
		identityType + "/*/assign/action", "Microsoft.Resources/subscriptions/resourceGroups/read"}})
	add("befefa01-2a29-4197-83a8-272ff33ce314", "DNS Zone Contributor", Permission{Actions: []string{"Microsoft.Network/dnsZones/*",
		"Microsoft.Resources/subscriptions/resourceGroups/read"}})
	add("ba92f5b4-2d11-453d-a403-e96b0029c9fe", "Storage Blob Data Contributor", Permission{Actions: []string{
		"Microsoft.Storage/storageAccounts/blobServices/containers/*"}, DataActions: []string{"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/*"}})
	return all
}

func (d Definition) json(scope string) map[string]any {
	kind, id := "CustomRole", d.ID
	if d.builtIn {
		kind = "BuiltInRole"
		if m := regexp.MustCompile(`(?i)^/subscriptions/[^/]+`).FindString(scope); m != "" {
			id = m + id
		}
	}
	at := d.Created.UTC().Format(time.RFC3339Nano)
	return map[string]any{"id": id, "name": d.Name, "type": definitionType, "properties": map[string]any{"roleName": d.RoleName, "type": kind,
		"description": d.Description, "assignableScopes": d.Scopes, "permissions": d.Permissions, "createdOn": at, "updatedOn": at}}
}

// assignable reports whether a role may be assigned at a scope.
func (d Definition) assignable(scope string) bool {
	return slices.ContainsFunc(d.Scopes, func(s string) bool { return within(scope, s) })
}

// visible reports whether a role is listed at a scope: it may be assigned there, or, at a subscription, in it.
func (d Definition) visible(scope string) bool {
	return d.assignable(scope) || slices.ContainsFunc(d.Scopes, func(s string) bool { return within(s, scope) })
}

// roleName is the GUID at the end of a definition's ID, in lower case.
func roleName(id string) string { return strings.ToLower(id[strings.LastIndexByte(id, '/')+1:]) }

// sameName reports whether two names of roles are the same: ASCII's letter case does not count; what Unicode folds beside that is another letter.
func sameName(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

func noDefinition(name string) error {
	return notFound("RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", bare(name))
}

// filter reads a $filter of equations, functions of one text, and functions of none, with "and" between them.
func (q *request) filter(names ...string) (map[string]string, error) {
	asked, text := map[string]string{}, strings.TrimSpace(q.query.Get("$filter"))
	if text == "" {
		return asked, nil
	}
	for part := range strings.SplitSeq(text, " and ") {
		m := regexp.MustCompile(`^(\w+)(?: eq '((?:[^']|'')*)'|\((?:'([^']*)')?\))$`).FindStringSubmatch(strings.TrimSpace(part))
		if m == nil || !slices.Contains(names, m[1]) {
			return nil, badRequest("UnsupportedQuery", "The filter '%s' is not supported. Supported filters are either 'atScope()' or of the form "+
				"\"principalId eq '{value}'\" or \"assignedTo('{value}')\".", text)
		}
		asked[m[1]] = strings.ReplaceAll(m[2], "''", "'") + m[3]
	}
	return asked, nil
}

func listDefinitions(q *request) (answer, error) {
	asked, err := q.filter("roleName", "type", "atScope", "atScopeAndBelow")
	if err != nil {
		return answer{}, err
	}
	var items []any
	for _, d := range fakecloud.Sorted(q.seen.definitions) {
		name, byName := asked["roleName"]
		kind, byKind := asked["type"]
		if byName && !sameName(name, d.RoleName) || byKind && strings.EqualFold(kind, "CustomRole") == d.builtIn || !d.visible(q.vars["scope"]) {
			continue
		}
		items = append(items, d.json(q.vars["scope"]))
	}
	return q.page(items)
}

func putDefinition(q *request) (answer, error) {
	var in struct {
		Properties struct {
			RoleName, Description, Type string
			AssignableScopes            []string
			Permissions                 []Permission
		}
	}
	if err := q.read(&in); err != nil {
		return answer{}, err
	}
	name, scope := strings.ToLower(q.vars["name"]), q.vars["scope"]
	p := in.Properties
	d := Definition{ID: scope + "/providers/" + definitionType + "/" + name, Name: name, RoleName: p.RoleName, Description: p.Description,
		Scopes: p.AssignableScopes, Permissions: p.Permissions, Created: q.now}
	old, exists := q.world.definitions[name]
	for other, o := range q.world.definitions {
		if other != name && sameName(o.RoleName, d.RoleName) {
			return answer{}, conflict("RoleDefinitionWithSameNameExists", "A custom role with the same name already exists in this directory. Use a different name")
		}
	}
	if exists {
		d.ID, d.Created = old.ID, old.Created
	}
	q.world.definitions = fakecloud.With(q.world.definitions, name, d)
	return created(d.json(scope))
}

func deleteDefinition(q *request) (answer, error) {
	name := strings.ToLower(q.vars["name"])
	d, found := q.world.definitions[name]
	if !found || d.builtIn {
		return nothing()
	}
	for _, a := range q.world.assignments {
		if roleName(a.Role) == name {
			return answer{}, conflict("RoleDefinitionHasAssignments", "There are existing role assignments referencing role (code: RoleDefinitionHasAssignments)")
		}
	}
	q.world.definitions = fakecloud.Without(q.world.definitions, name)
	return ok(d.json(q.vars["scope"]))
}
