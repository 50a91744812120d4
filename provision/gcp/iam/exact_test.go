package iam_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

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
		{"delete", func(t *testing.T, c *iam.Client) {
			p, _, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true})
			check(t, err)
			_, err = carryOut(t.Context(), p)
			check(t, err)
		}, true}, // what is deleted keeps its permissions
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
				return (c.Action == "PatchRole" || c.Action == "DeleteRole") && c.Code != ""
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
