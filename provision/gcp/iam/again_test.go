package iam_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
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
		{true, "GetProjectIamPolicy", "SetProjectIamPolicy"},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			mustApply(t, w, want)
			p := drifted(t, w, want)
			if tt.deletion {
				var err error
				p, _, err = w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo", CustomRoles: true})
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
				t.Errorf("deletion %t: no error says that %s was refused", tt.deletion, tt.read)
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

// A role that somebody else changes at the same time is read again before it is written, by its etag.
func TestRolesAreChangedByTheirEtag(t *testing.T) {
	t.Parallel()
	const role = "my-project/roles/myproject_openshiftingressgcp"
	for _, tt := range []struct {
		method string
		do     func(t *testing.T, c *iam.Client)
		kept   bool // what the other has added
	}{
		{"grow", func(t *testing.T, c *iam.Client) {
			more := installation("demo")
			more.Accounts.List[1].Permissions = append(slices.Clone(more.Accounts.List[1].Permissions), "dns.managedZones.get")
			_, err := apply(t.Context(), c, more)
			check(t, err)
		}, true},
		{"shrink", func(t *testing.T, c *iam.Client) {
			less := installation("demo")
			less.Accounts.Prune, less.Accounts.List[1].Permissions = true, []string{"dns.changes.create"}
			_, err := apply(t.Context(), c, less)
			check(t, err)
		}, false},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			w.ResetCalls()
			once := false
			tt.do(t, iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, role) && !once {
					once = true
					w.Do(t, "PATCH", role+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.create", "dns.changes.get", "dns.changes.list"}})
				}
				return w.RoundTrip(r)
			})}))
			refused := slices.ContainsFunc(w.Calls(), func(c fakegcp.Call) bool {
				return c.Action == "PatchRole" && c.Code != ""
			})
			if !once || !refused || strings.Contains(state(w), "dns.changes.list") != tt.kept {
				t.Errorf("%s: refused %t\n%s", tt.method, refused, state(w))
			}
		})
	}
}

// A policy without an etag is not changed: the write would replace it, with what others have granted.
func TestAPolicyWithoutAnEtagIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"my-project:getIamPolicy", "/serviceAccounts/demo-openshift-i-ixn3w@my-project.iam.gserviceaccount.com:getIamPolicy"} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			before := state(w)
			c := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				res, err := w.RoundTrip(r)
				if err == nil && strings.HasSuffix(r.URL.Path, of) {
					res.Body, res.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
				}
				return res, err
			})})
			if _, err := apply(t.Context(), c, installation("demo")); err == nil || !strings.Contains(err.Error(), "without an etag") {
				t.Errorf("%s: error %v", of, err)
			}
			if after := state(w); after != before {
				t.Errorf("%s:\n%s\nwas\n%s", of, after, before)
			}
		})
	}
}

// busy is a way to Google that takes the first change of a provider only later.
type busy struct {
	*world
	lost      bool   // the change is made, and the answer to it lost; else it is refused with 429
	meanwhile func() // what happens until it is sent again
	patches   int
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/providers/demo") {
		return b.world.RoundTrip(r)
	}
	if r.Method != http.MethodPatch {
		return b.world.RoundTrip(r)
	}
	if b.patches++; b.patches > 1 {
		return b.world.RoundTrip(r)
	}
	defer b.meanwhile()
	if b.lost {
		if res, err := b.world.RoundTrip(r); err != nil || res.StatusCode != http.StatusOK {
			return res, err
		}
		return nil, errors.New("the connection broke off")
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Status: "429 Too Many Requests", Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded."}}`))}, nil
}

// What Google takes only later may be minutes old by then. A change of a provider is not sent again over what somebody else has written since:
// it is decided anew, or given up where the keys are others.
func TestAChangeIsNotRepeatedOverAnother(t *testing.T) {
	t.Parallel()
	const victim = "https://victim.example.com"
	patch := func(t *testing.T, w *world, mask string, body map[string]any) {
		t.Helper()
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask="+mask, body)
	}
	newer := func(t *testing.T, w *world) {
		patch(t, w, "oidc.jwksJson", map[string]any{"oidc": map[string]any{"jwksJson": `{"keys":[{"kty":"RSA","kid":"k3","n":"AQAB","e":"AQAB"}]}`}})
	}
	given := func(t *testing.T, w *world) {
		patch(t, w, "oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": victim}})
	}
	for _, tt := range []struct {
		name      string
		lost      bool
		meanwhile func(t *testing.T, w *world)
		patches   int
		keys      string // that the provider has at last
		problem   rest.Problem
		says      string // empty for no error
	}{
		{"nothing", false, nil, 2, "k2", 0, ""},
		{"nothing, and it was made", true, nil, 1, "k2", 0, ""},
		{"another description", false, func(t *testing.T, w *world) {
			patch(t, w, "description", map[string]any{"description": "Created By OpenShift ccoctl, and told; installation demo"})
		}, 2, "k2", 0, ""},
		{"other keys", false, newer, 1, "k3", 0, "somebody else has changed the uploaded keys"},
		{"other keys, after it was made", true, newer, 1, "k3", 0, "somebody else has changed the uploaded keys"},
		{"another issuer", false, given, 1, "k1", rest.OtherIssuer, "trusts the issuer " + victim},
		{"another issuer, after it was made", true, given, 1, "k2", rest.OtherIssuer, "trusts the issuer " + victim},
		{"nobody may read it", false, func(_ *testing.T, w *world) {
			w.Fault(of("GetWorkloadIdentityPoolProvider", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "no")))
		}, 1, "k1", rest.Denied, "iam.workloadIdentityPoolProviders.get"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				want := installation("demo")
				want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k1")
				mustApply(t, w, want)
				want.Provider.JWKS = jwks(keyOne, "k2")
				b := &busy{world: w, lost: tt.lost, meanwhile: func() {
					if tt.meanwhile != nil {
						tt.meanwhile(t, w)
					}
				}}
				c := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: b})
				told, err := c.UploadKeys(t.Context(), *want.Provider)
				if problemOf(err) != tt.problem || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) || err == nil && told == tt.lost {
					t.Errorf("told %t, error %v", told, err)
				}
				if p := w.State().Providers[0]; !strings.Contains(p.OIDC.JWKS, tt.keys) || b.patches != tt.patches {
					t.Errorf("%d changes, and it has %+v", b.patches, p.OIDC)
				}
			})
		})
	}
}
