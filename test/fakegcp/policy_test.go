package fakegcp

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/iam/v1"
)

func version(n int64) *cloudresourcemanager.GetIamPolicyRequest {
	return &cloudresourcemanager.GetIamPolicyRequest{Options: &cloudresourcemanager.GetPolicyOptions{RequestedPolicyVersion: n}}
}

func TestAPolicyIsWrittenByItsEtag(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	projects := projectsOf(t, s)
	p := must(projects.GetIamPolicy("my-project", version(3)).Do())(t)
	if p.Etag != "ACAB" || len(p.Bindings) != 0 {
		t.Errorf("%+v", p)
	}
	p.Bindings = []*cloudresourcemanager.Binding{{Role: "roles/viewer", Members: []string{"user:a@example.com", "user:a@example.com"}},
		{Role: "roles/editor", Members: []string{"group:g@example.com"}}, {Role: "roles/viewer", Members: []string{"user:b@example.com"}}, {Role: "roles/owner"}}
	written := must(projects.SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Do())(t)
	if b := written.Bindings; len(b) != 2 || b[0].Role != "roles/editor" || !reflect.DeepEqual(b[1].Members, []string{"user:a@example.com", "user:b@example.com"}) {
		t.Errorf("%+v", b)
	}
	_, err := projects.SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Do()
	refused(t, err, http.StatusConflict, "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff., aborted")
	must(projects.SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: written}).Do())(t)
	written.Etag = ""
	must(projects.SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: written}).Do())(t)
}

func TestConditionsNeedVersion3(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	projects := projectsOf(t, s)
	set := func(p *cloudresourcemanager.Policy) error {
		_, err := projects.SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Do()
		return err
	}
	condition := &cloudresourcemanager.Expr{Title: "t", Expression: "request.time < timestamp('2030-01-01T00:00:00Z')"}
	p := &cloudresourcemanager.Policy{Version: 1, Bindings: []*cloudresourcemanager.Binding{
		{Role: "roles/viewer", Members: []string{"user:a@example.com"}, Condition: condition}}}
	refused(t, set(p), http.StatusBadRequest, "version 3")
	p.Version = 3
	if err := set(p); err != nil {
		t.Fatal(err)
	}
	empty := &cloudresourcemanager.Policy{Version: 3, Bindings: []*cloudresourcemanager.Binding{{Role: "roles/viewer", Condition: &cloudresourcemanager.Expr{}}}}
	refused(t, set(empty), http.StatusBadRequest, "title and an expression")

	for _, n := range []int64{0, 1} {
		old := must(projects.GetIamPolicy("my-project", version(n)).Do())(t)
		if old.Version != 1 || !strings.HasPrefix(old.Bindings[0].Role, "roles/viewer_withcond_") || old.Bindings[0].Condition != nil {
			t.Errorf("%+v", old.Bindings[0])
		}
		refused(t, set(old), http.StatusBadRequest, "Specified policy version (1) cannot be less than the existing policy version (3).")
		old.Etag = ""
		refused(t, set(old), http.StatusBadRequest, "_withcond_")
	}
	for _, n := range []int64{2, 4} {
		_, err := projects.GetIamPolicy("my-project", version(n)).Do()
		refused(t, err, http.StatusBadRequest, "is not supported")
	}
	refused(t, set(&cloudresourcemanager.Policy{Version: 2}), http.StatusBadRequest, "Invalid policy version (2)")
	p = must(projects.GetIamPolicy("my-project", version(3)).Do())(t)
	if p.Version != 3 || p.Bindings[0].Condition.Expression != condition.Expression {
		t.Errorf("%+v", p.Bindings[0])
	}
	p.Bindings = append(p.Bindings, &cloudresourcemanager.Binding{Role: "roles/viewer", Members: []string{"user:b@example.com"}})
	if err := set(p); err != nil {
		t.Fatal(err)
	}
	if got := s.State().Project; len(got.Bindings) != 2 || got.Version != 3 {
		t.Errorf("%+v", got)
	}
	// Blindly written, the condition is lost.
	if err := set(&cloudresourcemanager.Policy{Version: 1}); err != nil || s.State().Project.Version != 1 {
		t.Error(err)
	}
}

func TestADeletedAccountStaysInPoliciesAsDeleted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	email := makeAccount(t, s, "prod-a")
	id := s.State().Accounts[0].UniqueID
	must(projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
		Bindings: []*cloudresourcemanager.Binding{{Role: "roles/viewer", Members: []string{"user:a@example.com", "serviceAccount:" + email}}}}}).Do())(t)
	must(accountsOf(t, s).Delete("projects/-/serviceAccounts/" + email).Do())(t)
	gone := "deleted:serviceAccount:" + email + "?uid=" + id
	p := must(projectsOf(t, s).GetIamPolicy("my-project", version(3)).Do())(t)
	if p.Bindings[0].Members[1] != gone {
		t.Error(p.Bindings[0].Members)
	}
	must(projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Do())(t)
	_, err := projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
		Bindings: []*cloudresourcemanager.Binding{{Role: "roles/viewer", Members: []string{"serviceAccount:" + email}}}}}).Do()
	refused(t, err, http.StatusBadRequest, "Service account "+email+" does not exist.")
	makeAccount(t, s, "prod-a")
	if m := s.State().Project.Bindings[0].Members; m[1] != gone {
		t.Error("a new account of that name has the old one's roles:", m)
	}
	must(accountsOf(t, s).Delete("projects/-/serviceAccounts/" + email).Do())(t)
	must(accountsOf(t, s).Undelete("projects/-/serviceAccounts/"+id, &iam.UndeleteServiceAccountRequest{}).Do())(t)
	if m := s.State().Project.Bindings[0].Members; m[1] != "serviceAccount:"+email {
		t.Error(m)
	}
}
