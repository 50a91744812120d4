package gcp

import (
	"bytes"
	"encoding/json"
)

// The bodies of calls, for a dry run: what would be sent, whatever is there already.

// CreateJSON returns the body of the call that makes the pool (workloadIdentityPools.create).
func (w Pool) CreateJSON() []byte { return readable(w.body()) }

// CreateJSON returns the body of the call that makes the provider (workloadIdentityPools.providers.create). The error is about
// the keys to upload.
func (w Provider) CreateJSON() ([]byte, error) {
	body, err := w.body()
	return readable(body), err
}

// CreateJSON returns the body of the call that makes the i-th account (projects.serviceAccounts.create).
func (a Accounts) CreateJSON(i int) []byte { return readable(a.body(a.List[i])) }

// RoleJSON returns the body of the call that makes the custom role of the i-th account in the project with an ID
// (projects.roles.create); nil if it needs none.
func (a Accounts) RoleJSON(i int, projectID string) []byte {
	w := a.List[i]
	if len(w.Permissions) == 0 {
		return nil
	}
	r := customRole{title: roleTitle(projectID, w.requested()), description: ccoctlText(a.display(w)), permissions: w.Permissions}
	return readable(r.body(roleID(projectID, w.requested())))
}

// BindingsJSON returns the bindings that the i-th account needs in the project's policy, and those in its own. An unknown number
// of the project is written as PROJECT_NUMBER.
func (a Accounts) BindingsJSON(i int, p Project) []byte {
	if p.Number == "" {
		p.Number = "PROJECT_NUMBER"
	}
	w := a.List[i]
	email, roles := p.Email(a.id(w)), w.Roles
	if len(w.Permissions) > 0 {
		roles = append(roles[:len(roles):len(roles)], "projects/"+p.ID+"/roles/"+roleID(p.ID, w.requested()))
	}
	project, _ := holdings{roles: map[string][]string{email: roles}}.apply(policy{})
	own, _, _ := impersonators(p, a.Pool, w.Subjects, policy{})
	return readable(map[string][]binding{"project": project.Bindings, email: own.Bindings})
}

func readable(v any) []byte {
	var out bytes.Buffer
	_ = json.Indent(&out, asJSON(v), "", "    ") // it was just marshaled
	out.WriteByte('\n')
	return out.Bytes()
}
