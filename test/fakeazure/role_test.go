package fakeazure

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func custom(name string, actions ...string) string {
	b, _ := json.Marshal(map[string]any{"properties": map[string]any{"roleName": name, "type": "CustomRole", "description": "Custom role for OpenShift. Owned by: prod-a",
		"permissions": []any{map[string]any{"actions": actions, "dataActions": []string{}}}, "assignableScopes": []string{subscription}}})
	return string(b)
}

func filtered(path, filter string) string { return path + "?%24filter=" + url.QueryEscape(filter) }

func TestARoleIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	s, made := furnished(t, Options{})
	name := guid("role")
	path := definitions + "/" + name
	s.refused(t, "GET", path, "", "404 RoleDefinitionDoesNotExist The specified role definition with ID '"+bare(name)+"' does not exist.")
	r := s.must(t, "PUT", path, custom("prod-a-role", "Microsoft.Compute/virtualMachines/read"))
	if r.status != 201 || r.get("name") != name || r.get("properties.type") != "CustomRole" || r.get("id") != path {
		t.Error(r.text)
	}
	s.refused(t, "PUT", definitions+"/"+guid("another"), custom("PROD-A-role", "A/b/read"), "409 RoleDefinitionWithSameNameExists A custom role with the same name "+
		"already exists in this directory. Use a different name")
	if r := s.must(t, "PUT", path, custom("prod-a-role", "Microsoft.Network/*")); !strings.Contains(r.text, `"actions":["Microsoft.Network/*"]`) {
		t.Error(r.text)
	}
	for filter, want := range map[string]string{"roleName eq 'prod-a-role'": "[" + name + "]", "roleName eq 'Reader'": "[" + reader + "]",
		"type eq 'CustomRole'": "[" + name + "]", "roleName eq 'nobody'": "[]", "type eq 'CustomRole' and roleName eq 'Reader'": "[]"} {
		if n := s.must(t, "GET", filtered(definitions, filter), "").names(); fmt.Sprint(n) != want {
			t.Error(filter, n)
		}
	}
	s.refused(t, "GET", filtered(definitions, "dance eq 'x'"), "", "400 UnsupportedQuery")
	s.must(t, "PUT", assignments+"/"+guid("a"), assigned(name, made.get("properties.principalId"), ""))
	s.refused(t, "DELETE", path, "", "409 RoleDefinitionHasAssignments There are existing role assignments referencing role")
	s.must(t, "DELETE", assignments+"/"+guid("a"), "")
	if x, y := s.must(t, "DELETE", path, ""), s.must(t, "DELETE", path, ""); x.status != 200 || y.status != 204 {
		t.Error(x.status, y.status)
	}
}

func TestTheRulesOfARole(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Subscriptions: []string{"22222222-2222-3333-4444-555555555555"}})
	path := definitions + "/" + guid("role")
	s.refused(t, "PUT", definitions+"/x", custom("n", "A/b/read"), "400 InvalidRoleDefinitionId")
	s.refused(t, "PUT", path, custom("", "A/b/read"), "400 InvalidRoleDefinitionName")
	s.refused(t, "PUT", path, custom(strings.Repeat("n", 129), "A/b/read"), "400 InvalidRoleDefinitionName")
	s.refused(t, "PUT", path, custom("n", "read"), "400 InvalidActionOrNotAction 'read' does not match any of the actions supported by the providers.")
	s.refused(t, "PUT", path, strings.Replace(custom("n", "A/b/read"), `["`+subscription, `["/subscriptions/2`, 1), "400 InvalidRoleDefinitionAssignableScopes")
	s.refused(t, "PUT", definitions+"/"+reader, custom("n", "A/b/read"), "403 BuiltInRoleDefinitionCannotBeUpdated")

	// A name is taken in the whole tenant, and where it is taken cannot be seen from another subscription.
	elsewhere := strings.ReplaceAll(definitions, "11111111-", "22222222-")
	s.must(t, "PUT", elsewhere+"/"+guid("elsewhere"), strings.ReplaceAll(custom("n", "A/b/read"), "11111111-", "22222222-"))
	if n := s.must(t, "GET", filtered(definitions, "roleName eq 'n'"), "").names(); len(n) != 0 {
		t.Error(n)
	}
	s.refused(t, "PUT", path, custom("n", "A/b/read"), "409 RoleDefinitionWithSameNameExists")
}

func TestARoleIsSeenLater(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s, made := furnished(t, Options{Now: clock.Now, AuthorizationDelay: 10 * time.Second})
	name, principal := guid("role"), made.get("properties.principalId")
	s.must(t, "PUT", definitions+"/"+name, custom("n", "A/b/read"))
	if n := s.must(t, "GET", filtered(definitions, "roleName eq 'n'"), "").names(); len(n) != 0 {
		t.Error(n)
	}
	s.refused(t, "PUT", definitions+"/"+guid("another"), custom("n", "A/b/read"), "409 RoleDefinitionWithSameNameExists")
	s.refused(t, "PUT", assignments+"/"+guid("a"), assigned(name, principal, "ServicePrincipal"), "404 RoleDefinitionDoesNotExist")
	clock.Pass(10 * time.Second)
	s.must(t, "PUT", assignments+"/"+guid("a"), assigned(name, principal, "ServicePrincipal"))
	list := func() int { return len(s.must(t, "GET", assignments, "").names()) }
	if list() != 0 {
		t.Error("an assignment is seen at once")
	}
	clock.Pass(10 * time.Second)
	s.must(t, "DELETE", assignments+"/"+guid("a"), "")
	if list() != 1 {
		t.Error("a deletion is seen at once")
	}
}

func TestAnAssignmentCannotBeChanged(t *testing.T) {
	t.Parallel()
	s, made := furnished(t, Options{})
	principal, path := made.get("properties.principalId"), assignments+"/"+guid("a")
	const contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c"
	r := s.must(t, "PUT", path, assigned(reader, principal, ""))
	if r.status != 201 || r.get("properties.principalType") != "ServicePrincipal" || r.get("properties.scope") != group || r.get("name") != guid("a") {
		t.Error(r.text)
	}
	if r := s.must(t, "PUT", strings.ToUpper(path), assigned(reader, strings.ToUpper(principal), "")); r.status != 200 {
		t.Error(r.text)
	}
	const changed = "400 RoleAssignmentUpdateNotPermitted Tenant ID, application ID, principal ID, and scope are not allowed to be updated."
	s.refused(t, "PUT", path, assigned(contributor, principal, ""), changed)
	s.refused(t, "PUT", subscription+"/providers/Microsoft.Authorization/roleAssignments/"+guid("a"), assigned(reader, principal, ""), changed)
	s.refused(t, "PUT", assignments+"/"+guid("b"), assigned(reader, principal, ""), "409 RoleAssignmentExists The role assignment already exists. The ID of the "+
		"conflicting role assignment is "+bare(guid("a"))+".")
	s.refused(t, "PUT", assignments+"/x", assigned(reader, principal, ""), "400 InvalidRoleAssignmentId")
	s.refused(t, "PUT", assignments+"/"+guid("c"), assigned(reader, "x", ""), "400 InvalidPrincipalId")
	s.refused(t, "PUT", assignments+"/"+guid("c"), assigned(reader, guid("nobody"), ""), "400 PrincipalNotFound")
	s.refused(t, "PUT", assignments+"/"+guid("c"), assigned(contributor, principal, "User"), "400 UnmatchedPrincipalType")
	s.refused(t, "PUT", assignments+"/"+guid("c"), assigned(guid("no role"), principal, ""), "404 RoleDefinitionDoesNotExist")
	s.refused(t, "PUT", subscription+"/resourceGroups/none/providers/Microsoft.Authorization/roleAssignments/"+guid("c"), assigned(reader, principal, ""), "404 ResourceGroupNotFound")
	s.must(t, "DELETE", identity, "")
	if n := s.must(t, "GET", assignments, "").names(); len(n) != 1 {
		t.Error("the assignment of an identity that is gone, is gone too")
	}
	if x, y := s.must(t, "DELETE", path, ""), s.must(t, "DELETE", path, ""); x.status != 200 || y.status != 204 {
		t.Error(x.status, y.status)
	}
	s.refused(t, "GET", path, "", "404 RoleAssignmentNotFound")
}

func TestAssignmentsAreListedByPrincipalAndThroughGroups(t *testing.T) {
	t.Parallel()
	s, made := furnished(t, Options{})
	principal, team := made.get("properties.principalId"), guid("team")
	s.Join(team, principal)
	above := subscription + "/providers/Microsoft.Authorization/roleAssignments"
	s.must(t, "PUT", assignments+"/"+guid("own"), assigned(reader, principal, ""))
	s.must(t, "PUT", above+"/"+guid("inherited"), assigned(reader, principal, ""))
	if r := s.must(t, "PUT", above+"/"+guid("through"), assigned(reader, team, "")); r.get("properties.principalType") != "Group" {
		t.Error(r.text)
	}
	for _, c := range []struct {
		at, filter string
		want       int
	}{
		{above, "principalId eq '" + principal + "'", 2},
		{above, "assignedTo('" + strings.ToUpper(principal) + "')", 3},
		{above, "atScope()", 2},
		{assignments, "atScope() and principalId eq '" + principal + "'", 2},
		{assignments, "principalId eq '" + team + "'", 1},
		{above, "", 3},
	} {
		if n := s.must(t, "GET", filtered(c.at, c.filter), "").names(); len(n) != c.want {
			t.Error(c, n)
		}
	}
}
