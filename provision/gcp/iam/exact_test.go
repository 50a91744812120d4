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

// Whatever a run makes, a deletion finds as ours, whatever the names are; and nothing of a stranger goes, or of an installation whose
// name begins with this one's.
func TestWhatARunMakesADeletionFinds(t *testing.T) {
	t.Parallel()
	there := func(w *world) string {
		lines := slices.DeleteFunc(strings.Split(state(w), "\n"), func(l string) bool {
			return strings.Contains(l, " DELETED ") || strings.HasSuffix(l, "deleted=true")
		})
		return strings.Join(lines, "\n")
	}
	named := func(name string, requests ...string) iam.Wanted {
		w := installation(name)
		for i, q := range requests {
			w.Accounts.List[i].Request = q
		}
		return w
	}
	for _, name := range []string{"demo", "d-mo", "abcd", "a--b", "demo-" + strings.Repeat("x", 22), "a" + strings.Repeat("-0", 10)} {
		for _, requests := range [][]string{{"a", "b", "c"}, {strings.Repeat("r", 60), "r-1", "1-r"}, {"openshift-image-registry-gcs", "r", name}} {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				w.project(t, func(p *fakegcp.Policy) {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/viewer", Members: []string{"user:a@example.com"}})
				})
				w.Do(t, "POST", "my-project/serviceAccounts", map[string]any{"accountId": "stranger", "serviceAccount": map[string]string{"displayName": name + "-" + requests[0], "description": "x"}})
				w.Do(t, "POST", "my-project/roles", map[string]any{"roleId": "theirs", "role": map[string]any{"title": "theirs", "includedPermissions": []string{"dns.changes.get"}}})
				longer := named(name+"-x", "other-1", "other-2", "other-3")
				mustApply(t, w, longer)
				before := there(w)
				want := named(name, requests...)
				mustApply(t, w, want)
				finished(t, w, want)
				p, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: name, CustomRoles: true})
				check(t, err)
				_, err = carryOut(t.Context(), p)
				check(t, err)
				if after := there(w); after != before {
					t.Errorf("%s with %q: there is\n%s\nwant\n%s", name, requests, after, before)
				}
				finished(t, w, longer)
			})
		}
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
