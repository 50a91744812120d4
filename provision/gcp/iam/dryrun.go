package iam

import "github.com/keypost/keypost/provision/gcp/rest"

// The bodies of calls, for a dry run: what would be sent, whatever is there already.

// CreateJSON returns the body of the call that makes the i-th account (projects.serviceAccounts.create).
func (a Accounts) CreateJSON(i int) []byte { return rest.Readable(a.body(a.List[i])) }

// RoleJSON returns the body of the call that makes the custom role of the i-th account in the project with an ID
// (projects.roles.create); nil if it needs none.
func (a Accounts) RoleJSON(i int, projectID string) []byte {
	w := a.List[i]
	if len(w.Permissions) == 0 {
		return nil
	}
	r := customRole{title: roleTitle(projectID, w.requested()), description: ccoctlText(a.DisplayName(w)), permissions: w.Permissions}
	return rest.Readable(r.body(w.RoleID(projectID)))
}
