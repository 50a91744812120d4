package fakegcp

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/cloudresourcemanager/v1"
	"google.golang.org/api/iam/v1"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func version(n int64) *cloudresourcemanager.GetIamPolicyRequest {
	return &cloudresourcemanager.GetIamPolicyRequest{Options: &cloudresourcemanager.GetPolicyOptions{RequestedPolicyVersion: n}}
}

func TestAProjectIsKnownByItsNumberToo(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for _, id := range []string{"my-project", "123456789012"} {
		if p := must(projectsOf(t, s).Get(id).Do())(t); p.ProjectNumber != 123456789012 || p.ProjectId != "my-project" {
			t.Errorf("%+v", p)
		}
	}
	_, err := projectsOf(t, s).Get("other").Do()
	refused(t, err, http.StatusForbidden, "The caller does not have permission, forbidden")
	_, err = poolsOf(t, s).Get("projects/other/locations/global/workloadIdentityPools/prod-a").Do()
	refused(t, err, http.StatusForbidden, "Permission 'iam.workloadIdentityPools.get' denied on resource "+
		"'//iam.googleapis.com/projects/other/locations/global/workloadIdentityPools/prod-a' (or it may not exist).")
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

// Policies know a pool, and that an account is gone, some time after IAM does.
func TestPoliciesLagBehind(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now, PoolDelay: time.Minute, RenameDelay: time.Minute})
	bind := func(members ...string) error {
		_, err := projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
			Bindings: []*cloudresourcemanager.Binding{{Role: "roles/viewer", Members: members}}}}).Do()
		return err
	}
	subject := "principal://iam.googleapis.com/" + numbered + "/subject/s"
	must(poolsOf(t, s).Create(parent+"/locations/global", &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do())(t)
	refused(t, bind(subject), http.StatusBadRequest, "Identity Pool does not exist ("+numbered+")")
	clock.Pass(time.Minute)
	member := "serviceAccount:" + makeAccount(t, s, "prod-a")
	if err := bind(subject, member); err != nil {
		t.Error(err)
	}
	gone := "deleted:" + member + "?uid=" + s.State().Accounts[0].UniqueID
	must(accountsOf(t, s).Delete("projects/-/serviceAccounts/" + strings.TrimPrefix(member, "serviceAccount:")).Do())(t)
	makeAccount(t, s, "prod-a")
	refused(t, bind(gone, member), http.StatusBadRequest, "Inconsistent representation of deleted member: '"+gone+"' and '"+member+"'.")
	clock.Pass(time.Minute)
	if err := projectsOf(t, s).GetIamPolicy("my-project", version(3)); must(err.Do())(t).Bindings[0].Members[1] != gone {
		t.Errorf("there is %v", s.State().Project.Bindings)
	}
	if err := bind(gone, member); err != nil {
		t.Error(err)
	}
}

func TestAnOrganisationForbidsAccountsAndMembers(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{NoAccounts: true, OwnMembers: true})
	_, err := accountsOf(t, s).Create(parent, &iam.CreateServiceAccountRequest{AccountId: "prod-a"}).Do()
	refused(t, err, http.StatusBadRequest, "Service account creation is not allowed on this project.")
	must(poolsOf(t, s).Create(parent+"/locations/global", &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do())(t)
	_, err = projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
		Bindings: []*cloudresourcemanager.Binding{{Role: "roles/viewer", Members: []string{"principal://iam.googleapis.com/" + numbered + "/subject/s"}}}}}).Do()
	refused(t, err, http.StatusBadRequest, "do not belong to a permitted customer")
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

func TestAuditConfigsStayUnlessTheyAreSent(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	set := func(p *cloudresourcemanager.Policy) {
		must(projectsOf(t, s).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: p}).Do())(t)
	}
	set(&cloudresourcemanager.Policy{AuditConfigs: []*cloudresourcemanager.AuditConfig{{Service: "allServices"}}})
	set(&cloudresourcemanager.Policy{})
	var got []map[string]any
	if err := json.Unmarshal(s.State().Project.Audit, &got); err != nil || got[0]["service"] != "allServices" {
		t.Error(got, err)
	}
}

func TestOnlyABindingWithoutConditionLetsImpersonate(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	accounts, roles := accountsOf(t, st.Server), iamOf(t, st.Server).Projects.Roles
	member := "principal://iam.googleapis.com/" + numbered + "/subject/" + subject
	must(roles.Create(parent, &iam.CreateRoleRequest{RoleId: "ours", Role: &iam.Role{IncludedPermissions: []string{"iam.serviceAccounts.getAccessToken"}}}).Do())(t)
	must(roles.Create(parent, &iam.CreateRoleRequest{RoleId: "less", Role: &iam.Role{IncludedPermissions: []string{"iam.serviceAccounts.get"}}}).Do())(t)
	for name, c := range map[string]struct {
		binding *iam.Binding
		lets    bool
	}{
		"user":          {&iam.Binding{Role: "roles/iam.workloadIdentityUser", Members: []string{member}}, true},
		"creator":       {&iam.Binding{Role: "roles/iam.serviceAccountTokenCreator", Members: []string{member}}, true},
		"custom":        {&iam.Binding{Role: parent + "/roles/ours", Members: []string{member}}, true},
		"custom, less":  {&iam.Binding{Role: parent + "/roles/less", Members: []string{member}}, false},
		"another role":  {&iam.Binding{Role: "roles/iam.serviceAccountUser", Members: []string{member}}, false},
		"a condition":   {&iam.Binding{Role: "roles/iam.workloadIdentityUser", Members: []string{member}, Condition: &iam.Expr{Title: "t", Expression: "true"}}, false},
		"a prefix only": {&iam.Binding{Role: "roles/iam.workloadIdentityUser", Members: []string{member + "2"}}, false},
	} {
		p := &iam.Policy{Version: 3, Bindings: []*iam.Binding{c.binding}}
		must(accounts.SetIamPolicy(parent+"/serviceAccounts/"+st.email, &iam.SetIamPolicyRequest{Policy: p}).Do())(t)
		if err := st.try(t); (err == nil) != c.lets {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := &iam.Policy{Bindings: []*iam.Binding{{Role: parent + "/roles/ours", Members: []string{member}}}}
	must(accounts.SetIamPolicy(parent+"/serviceAccounts/"+st.email, &iam.SetIamPolicyRequest{Policy: p}).Do())(t)
	must(roles.Delete(parent + "/roles/ours").Do())(t)
	says(t, st.try(t), "getAccessToken") // what a deleted role gives
	must(accounts.SetIamPolicy(parent+"/serviceAccounts/"+st.email, &iam.SetIamPolicyRequest{Policy: &iam.Policy{}}).Do())(t)
	must(projectsOf(t, st.Server).SetIamPolicy("my-project", &cloudresourcemanager.SetIamPolicyRequest{Policy: &cloudresourcemanager.Policy{
		Bindings: []*cloudresourcemanager.Binding{{Role: "roles/iam.workloadIdentityUser", Members: []string{member}}}}}).Do())(t)
	if err := st.try(t); err != nil {
		t.Error("the project's policy does not count:", err)
	}
	must(accounts.Disable(parent+"/serviceAccounts/"+st.email, &iam.DisableServiceAccountRequest{}).Do())(t)
	says(t, st.try(t), "getAccessToken")
	must(accounts.Enable(parent+"/serviceAccounts/"+st.email, &iam.EnableServiceAccountRequest{}).Do())(t)
	if err := st.try(t); err != nil {
		t.Error(err)
	}
}
