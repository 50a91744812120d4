package fakegcp

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/iam/v1"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestAnAccountIsMadeFoundChangedAndDeleted(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now})
	accounts := accountsOf(t, s)
	a := must(accounts.Create(parent, &iam.CreateServiceAccountRequest{AccountId: "prod-a",
		ServiceAccount: &iam.ServiceAccount{DisplayName: "d", Description: "e"}}).Do())(t)
	const email = "prod-a@my-project.iam.gserviceaccount.com"
	if a.Email != email || a.Name != parent+"/serviceAccounts/"+email || len(a.UniqueId) != 21 || a.ProjectId != "my-project" {
		t.Errorf("%+v", a)
	}
	for _, name := range []string{parent, "projects/-"} {
		for _, ref := range []string{email, a.UniqueId} {
			if got := must(accounts.Get(name + "/serviceAccounts/" + ref).Do())(t); got.UniqueId != a.UniqueId || got.DisplayName != "d" {
				t.Errorf("%s %s: %+v", name, ref, got)
			}
		}
	}
	_, err := accounts.Create(parent, &iam.CreateServiceAccountRequest{AccountId: "prod-a"}).Do()
	refused(t, err, http.StatusConflict, "Service account prod-a already exists within project projects/my-project.")
	_, err = accounts.Get(parent + "/serviceAccounts/x").Do()
	refused(t, err, http.StatusNotFound, "Unknown service account, notFound")
	must(accounts.Patch(a.Name, &iam.PatchServiceAccountRequest{UpdateMask: "display_name", ServiceAccount: &iam.ServiceAccount{DisplayName: "new"}}).Do())(t)
	_, err = accounts.Patch(a.Name, &iam.PatchServiceAccountRequest{UpdateMask: "email", ServiceAccount: &iam.ServiceAccount{}}).Do()
	refused(t, err, http.StatusBadRequest, "email")
	if got := s.State().Accounts[0]; got.DisplayName != "new" || got.Description != "e" {
		t.Errorf("%+v", got)
	}

	must(accounts.Delete(a.Name).Do())(t)
	_, err = accounts.Get(a.Name).Do()
	refused(t, err, http.StatusNotFound, "")
	b := must(accounts.Create(parent, &iam.CreateServiceAccountRequest{AccountId: "prod-a"}).Do())(t)
	if b.UniqueId == a.UniqueId {
		t.Error("a unique ID is used again")
	}
	back := parent + "/serviceAccounts/" + a.UniqueId
	_, err = accounts.Undelete(back, &iam.UndeleteServiceAccountRequest{}).Do()
	refused(t, err, http.StatusBadRequest, "failedPrecondition")
	must(accounts.Delete(b.Name).Do())(t)
	_, err = accounts.Undelete(a.Name, &iam.UndeleteServiceAccountRequest{}).Do()
	refused(t, err, http.StatusNotFound, "")
	if got := must(accounts.Undelete(back, &iam.UndeleteServiceAccountRequest{}).Do())(t); got.RestoredAccount.Email != email {
		t.Errorf("%+v", got)
	}
	must(accounts.Delete(a.Name).Do())(t)
	clock.Pass(30 * 24 * time.Hour)
	_, err = accounts.Undelete(back, &iam.UndeleteServiceAccountRequest{}).Do()
	refused(t, err, http.StatusNotFound, "")
}

func TestARoleIsMadeChangedDeletedAndRevived(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now, PageSize: 1})
	roles := iamOf(t, s).Projects.Roles
	const name = parent + "/roles/my_role"
	permissions := []string{"compute.addresses.create"}
	r := must(roles.Create(parent, &iam.CreateRoleRequest{RoleId: "my_role", Role: &iam.Role{Title: "t", IncludedPermissions: permissions, Stage: "GA"}}).Do())(t)
	if r.Name != name || r.Etag == "" || r.Stage != "GA" {
		t.Errorf("%+v", r)
	}
	_, err := roles.Create(parent, &iam.CreateRoleRequest{RoleId: "my_role", Role: &iam.Role{}}).Do()
	refused(t, err, http.StatusConflict, "A role named my_role in projects/my-project already exists.")
	must(roles.Create(parent, &iam.CreateRoleRequest{RoleId: "other", Role: &iam.Role{IncludedPermissions: permissions}}).Do())(t)
	for view, want := range map[string]int{"": 0, "BASIC": 0, "FULL": 1} {
		token, seen := "", 0
		for {
			l := must(roles.List(parent).View(view).PageToken(token).Do())(t)
			for _, r := range l.Roles {
				if seen++; len(r.IncludedPermissions) != want {
					t.Errorf("view %q: %v", view, r.IncludedPermissions)
				}
			}
			if token = l.NextPageToken; token == "" {
				break
			}
		}
		if seen != 2 {
			t.Error(seen)
		}
	}
	_, err = roles.Patch(name, &iam.Role{Etag: "old", Title: "new"}).UpdateMask("title").Do()
	refused(t, err, http.StatusConflict, "There were concurrent policy changes.")
	changed := must(roles.Patch(name, &iam.Role{Etag: r.Etag, Title: "new", IncludedPermissions: append(permissions, "a.b.c")}).
		UpdateMask("title,includedPermissions,included_permissions,stage,description").Do())(t)
	if changed.Title != "new" || len(changed.IncludedPermissions) != 2 || changed.Etag == r.Etag || changed.Stage != "" {
		t.Errorf("%+v", changed)
	}

	bindProject(t, s, name)
	_, err = roles.Delete(name).Etag(r.Etag).Do()
	refused(t, err, http.StatusConflict, "There were concurrent policy changes.")
	if got := must(roles.Delete(name).Etag(changed.Etag).Do())(t); !got.Deleted {
		t.Error("it is not deleted")
	}
	_, err = roles.Delete(name).Do()
	refused(t, err, http.StatusBadRequest, "marked for deletion")
	_, err = roles.Patch(name, &iam.Role{}).UpdateMask("title").Do()
	refused(t, err, http.StatusBadRequest, "marked for deletion")
	_, err = roles.Create(parent, &iam.CreateRoleRequest{RoleId: "my_role", Role: &iam.Role{}}).Do()
	refused(t, err, http.StatusBadRequest, "You can't create a role_id (my_role) which has been marked for deletion., failedPrecondition")
	if got := must(roles.Get(name).Do())(t); !got.Deleted {
		t.Errorf("%+v", got)
	}
	bindProject(t, s, name) // where it was bound it stays
	count := func() int { return len(must(roles.List(parent).ShowDeleted(true).PageToken("").Do())(t).Roles) }
	if count() != 1 || len(must(roles.List(parent).Do())(t).Roles) != 1 {
		t.Error("pages of deleted roles")
	}
	_, err = roles.Undelete(name, &iam.UndeleteRoleRequest{Etag: "old"}).Do()
	refused(t, err, http.StatusConflict, "There were concurrent policy changes.")
	must(roles.Undelete(name, &iam.UndeleteRoleRequest{}).Do())(t)
	_, err = roles.Undelete(name, &iam.UndeleteRoleRequest{}).Do()
	refused(t, err, http.StatusBadRequest, "has not been marked")

	must(roles.Delete(name).Do())(t)
	clock.Pass(7 * 24 * time.Hour)
	_, err = roles.Undelete(name, &iam.UndeleteRoleRequest{}).Do()
	refused(t, err, http.StatusNotFound, "")
	_, err = roles.Create(parent, &iam.CreateRoleRequest{RoleId: "my_role", Role: &iam.Role{}}).Do()
	refused(t, err, http.StatusBadRequest, "marked for deletion")
	clock.Pass(30 * 24 * time.Hour)
	must(roles.Create(parent, &iam.CreateRoleRequest{RoleId: "my_role", Role: &iam.Role{}}).Do())(t)
}

// bindProject writes a policy with one binding of a role.
func bindProject(t testing.TB, s *Server, role string) {
	t.Helper()
	must(projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
		Bindings: []*cloudresourcemanager.Binding{{Role: role, Members: []string{"user:a@example.com"}}}}}).Do())(t)
}
