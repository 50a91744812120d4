package iam_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
)

// What cannot be read again when its turn has come is neither written nor deleted: the plan is older, and of what was not read nothing is
// known. Were it taken for what is not there, a policy that names only us would be written over the whole of it.
func TestWhatCannotBeReadAgainIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		deletion    bool
		read, write string // what the names of the calls end in
	}{
		{false, "GetWorkloadIdentityPool", "WorkloadIdentityPool"},
		{false, "GetWorkloadIdentityPoolProvider", "WorkloadIdentityPoolProvider"},
		{false, "GetServiceAccount", "ServiceAccount"},
		{false, "GetServiceAccountIamPolicy", "SetServiceAccountIamPolicy"},
		{false, "GetRole", "Role"},
		{false, "GetProjectIamPolicy", "SetProjectIamPolicy"},
		{true, "GetWorkloadIdentityPool", "DeleteWorkloadIdentityPool"},
		{true, "ListWorkloadIdentityPoolProviders", "DeleteWorkloadIdentityPool"},
		{true, "GetServiceAccount", "DeleteServiceAccount"},
		{true, "GetRole", "DeleteRole"},
		{true, "GetProjectIamPolicy", "DeleteRole"},
		{true, "GetProjectIamPolicy", "SetProjectIamPolicy"},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			mustApply(t, w, want)
			p := drifted(t, w, want)
			if tt.deletion {
				var err error
				p, _, err = w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true})
				check(t, err)
			}
			w.Fault(of(tt.read, fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission")))
			w.ResetCalls()
			told := false
			for _, stage := range p.Stages { // each by itself: an error ends those after it
				_, err := carryOut(t.Context(), plan.Of(nil, stage))
				told = told || problemOf(err) == rest.Denied
			}
			if !told {
				t.Errorf("deletion %t: no error tells that %s was refused", tt.deletion, tt.read)
			}
			for _, c := range w.Calls() {
				if c.Write && strings.HasSuffix(c.Action, tt.write) {
					t.Errorf("deletion %t: %s was refused, and then came %s", tt.deletion, tt.read, c.Action)
				}
			}
			contains(t, state(w), "policy of project: roles/owner [user:boss@example.com]")
		})
	}
}

// drifted changes everything that an installation has, and returns the plan that makes it good.
func drifted(t *testing.T, w *world, want iam.Wanted) plan.Plan {
	t.Helper()
	account := "my-project/serviceAccounts/" + email(t, w, want, 1)
	w.Do(t, "PATCH", poolPath+"?updateMask=disabled", map[string]any{"disabled": true})
	w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=disabled", map[string]any{"disabled": true})
	w.Do(t, "POST", account+":disable", struct{}{})
	w.ChangePolicy(t, account, func(p *fakegcp.Policy) { p.Bindings[0].Members[0] += "-x" })
	w.Do(t, "PATCH", "my-project/roles/myproject_openshiftingressgcp?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.get"}})
	w.project(t, func(p *fakegcp.Policy) {
		p.Bindings = append(p.Bindings[1:], fakegcp.Binding{Role: "roles/owner", Members: []string{"user:boss@example.com"}})
	})
	p, err := w.client().Plan(t.Context(), want)
	check(t, err)
	return p.Plan
}
