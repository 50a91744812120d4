package iam

import (
	"bytes"
	"encoding/json"

	"github.com/keypost/keypost/provision/gcp/internal/rest"
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
	r := customRole{title: roleTitle(projectID, w.requested()), description: ccoctlText(a.DisplayName(w)), permissions: w.Permissions}
	return readable(r.body(w.RoleID(projectID)))
}

func readable(v any) []byte {
	var out bytes.Buffer
	_ = json.Indent(&out, rest.JSON(v), "", "    ") // it was just marshaled
	out.WriteByte('\n')
	return out.Bytes()
}
