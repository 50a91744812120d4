package fakegcp

import (
	"net/http"
	"strings"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

// The life of a deleted custom role: for a week it can be brought back, and for 37 days its ID cannot be used
// (https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role).
const (
	roleKept    = 7 * 24 * time.Hour
	roleBlocked = 37 * 24 * time.Hour
)

// role is what a call names, while anybody can see it.
func (q *request) role() (Role, error) {
	r, ok := q.world.roles[q.vars["role"]]
	if !ok || r.Deleted && !q.now.Before(r.DeletedAt.Add(roleKept)) {
		return Role{}, notFound("The role named projects/%s/roles/%s was not found.", q.Project, q.vars["role"])
	}
	return r, nil
}

func getRole(q *request) (any, error) { return q.role() }

// listRoles leaves the permissions out unless they are asked for with view=FULL, on every page anew.
func listRoles(q *request) (any, error) {
	view := q.query.Get("view")
	var l []any
	for _, r := range fakecloud.Sorted(q.world.roles) {
		if r.Deleted && (q.query.Get("showDeleted") != "true" || !q.now.Before(r.DeletedAt.Add(roleKept))) {
			continue
		}
		if view != "FULL" {
			r.Permissions = nil
		}
		l = append(l, r)
	}
	return q.page("roles", l, pageRule{300, 1000})
}

func createRole(q *request) (any, error) {
	var in struct {
		ID   string `json:"roleId"`
		Role Role   `json:"role"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	for id, r := range q.world.roles {
		if id != in.ID {
			continue
		}
		if r.Deleted {
			return nil, precondition("You can't create a role_id (%s) which has been marked for deletion.", in.ID)
		}
		return nil, fail(http.StatusConflict, "ALREADY_EXISTS", "A role named %s in projects/%s already exists.", in.ID, q.Project)
	}
	r := in.Role
	r.Name, r.Deleted, r.Etag = "projects/"+q.Project+"/roles/"+in.ID, false, q.etag()
	if r.Stage == "" {
		r.Stage = "ALPHA"
	}
	q.world.roles = fakecloud.With(q.world.roles, in.ID, r)
	return r, nil
}

func patchRole(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	var in Role
	paths, err := q.mask(&in)
	if err != nil {
		return nil, err
	}
	if r.Deleted {
		return nil, precondition("You can't update the role named %s which has been marked for deletion.", r.Name)
	}
	if in.Etag != "" && in.Etag != r.Etag {
		return nil, concurrent()
	}
	for _, path := range paths {
		switch path {
		case "title":
			r.Title = in.Title
		case "description":
			r.Description = in.Description
		case "includedPermissions":
			r.Permissions = in.Permissions
		case "stage":
			r.Stage = in.Stage
		case "name", "etag", "deleted":
		default:
			return nil, invalid("Invalid update_mask: %s.", path)
		}
	}
	return q.keepRole(r), nil
}

// keepRole makes a role the present one, under a new etag.
func (q *request) keepRole(r Role) Role {
	r.Etag = q.etag()
	q.world.roles = fakecloud.With(q.world.roles, r.Name[strings.LastIndexByte(r.Name, '/')+1:], r)
	return r
}

// deleteRole honours an etag (https://cloud.google.com/iam/docs/reference/rest/v1/projects.roles/delete).
func deleteRole(q *request) (any, error) {
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	if r.Deleted {
		return nil, precondition("You can't delete role_id (%s) as it is already deleted.", r.Name)
	}
	if etag := q.query.Get("etag"); etag != "" && etag != r.Etag {
		return nil, concurrent()
	}
	r.Deleted, r.DeletedAt = true, q.now
	return q.keepRole(r), nil
}

func undeleteRole(q *request) (any, error) {
	var in struct {
		Etag string `json:"etag"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	r, err := q.role()
	if err != nil {
		return nil, err
	}
	if !r.Deleted {
		return nil, precondition("The role named %s has not been marked for deletion.", r.Name)
	}
	if in.Etag != "" && in.Etag != r.Etag {
		return nil, concurrent()
	}
	r.Deleted = false
	return q.keepRole(r), nil
}
