package iam_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

const ingressRole = "my-project/roles/myproject_openshiftingressgcp"

// A role that was deleted is brought back and changed by its etags, which the first of these calls changes: none is refused.
func TestARoleIsBroughtBack(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		before := state(w)
		w.Do(t, "PATCH", ingressRole+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.get"}})
		w.Do(t, "DELETE", ingressRole, nil)
		w.ResetCalls()
		mustApply(t, w, installation("demo"))
		for _, c := range w.Calls() {
			if c.Write && c.Code != "" {
				t.Errorf("%s is refused with %s", c.Action, c.Code)
			}
			if c.Action == "UndeleteRole" && !strings.Contains(c.Body, `"etag":"`) {
				t.Errorf("brought back whatever it is by now: %s", c.Body)
			}
		}
		if after := strings.Replace(state(w), "[dns.changes.get dns.changes.create]", "[dns.changes.create dns.changes.get]", 1); after != before {
			t.Errorf("there is\n%s\nwant\n%s", after, before)
		}
		finished(t, w, installation("demo"))
	})
}

// A role that is brought back and pruned loses what nobody asks for in the same run, which the preview shows; one that somebody else has
// too keeps it.
func TestARoleIsBroughtBackAndPruned(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			mustApply(t, w, want)
			if shared {
				w.project(t, func(p *fakegcp.Policy) {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "projects/" + ingressRole, Members: []string{"user:a@example.com"}})
				})
			}
			w.Do(t, "PATCH", ingressRole+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.get", "dns.managedZones.delete"}})
			w.Do(t, "DELETE", ingressRole, nil)
			want.Accounts.Prune = true
			text := preview(t, w, want)
			contains(t, text, "brought back", "+ permission dns.changes.create")
			if strings.Contains(text, "- permission dns.managedZones.delete") == shared {
				t.Errorf("shared %t: plan\n%s", shared, text)
			}
			mustApply(t, w, want)
			if strings.Contains(state(w), "dns.managedZones.delete") != shared {
				t.Errorf("shared %t: there is\n%s", shared, state(w))
			}
			contains(t, state(w), "dns.changes.create")
			finished(t, w, want)
		})
	}
}

// A deletion takes the roles that its accounts have, and those of its requests: no other role of ccoctl's that nobody has, none of
// somebody else's making, and none that is deleted already.
func TestADeletionTakesItsOwnRoles(t *testing.T) {
	t.Parallel()
	role := func(t *testing.T, w *world, id, title, description string) {
		t.Helper()
		w.Do(t, "POST", "my-project/roles", map[string]any{"roleId": id, "role": map[string]any{"title": title, "description": description,
			"includedPermissions": []string{"dns.changes.get"}}})
	}
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		role(t, w, "others", "my-project-others", ccoctlText)
		role(t, w, "asked", "my-project-asked", ccoctlText)
		role(t, w, "strangers", "my-project-strangers", "of another team")
		role(t, w, "gone", "my-project-gone", ccoctlText)
		w.project(t, func(p *fakegcp.Policy) { // a stranger's role, and one that is gone, which an account of ours has
			for i, b := range p.Bindings {
				if b.Role == "projects/"+ingressRole {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "projects/my-project/roles/strangers", Members: p.Bindings[i].Members},
						fakegcp.Binding{Role: "projects/my-project/roles/gone", Members: p.Bindings[i].Members})
					return
				}
			}
			t.Error("nobody has the role")
		})
		w.Do(t, "DELETE", "my-project/roles/gone", nil)
		p, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true, Requests: []string{"asked", "strangers", "gone"}})
		check(t, err)
		var gone []string
		for line := range strings.Lines(shown(t, p)) {
			if _, name, is := strings.Cut(line, "delete IAM custom role projects/my-project/roles/"); is {
				gone = append(gone, strings.TrimSpace(name))
			}
		}
		slices.Sort(gone)
		if strings.Join(gone, " ") != "asked myproject_openshiftgcpccm myproject_openshiftingressgcp" {
			t.Errorf("it deletes %q", gone)
		}
		_, err = carryOut(t.Context(), p)
		check(t, err)
		contains(t, state(w), `roles/others "my-project-others"`)
	})
}

// A request whose name comes to the ID of another one's role does not get what that one may do, in whichever run; unless the role is
// adopted, which gives it this one's title.
func TestAnIDThatTwoRequestsComeTo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"openshiftingress-gcp", "openshift-ingressgcp"} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			before := state(w)
			hostile := installation("other")
			hostile.Accounts.List = []iam.Account{{Request: name, Permissions: []string{"dns.changes.list"}, Subjects: []string{subject}}}
			_, err := w.client().Plan(t.Context(), hostile)
			want := "IAM custom role projects/" + ingressRole + ` is somebody else's: its title is "my-project-openshift-ingress-gcp", and this one's would be "my-project-` + name +
				`", which comes to the same ID`
			if problemOf(err) != rest.NotOwned || err.Error() != want {
				t.Errorf("error %v\nwant %s", err, want)
			}
			if after := state(w); after != before {
				t.Errorf("there is\n%s\nwas\n%s", after, before)
			}
			hostile.Accounts.Adopt = true
			contains(t, preview(t, w, hostile), "- title my-project-openshift-ingress-gcp", "+ title my-project-"+name)
			mustApply(t, w, hostile)
			hostile.Accounts.Adopt = false
			finished(t, w, hostile)
		})
	}
}

// A role that bears our title is ours, also where one that only has the ID comes first in the list.
func TestATitleComesBeforeAnID(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		w.Do(t, "PATCH", ingressRole+"?updateMask=title", map[string]any{"title": "my-project-openshiftingress-gcp"})
		w.Do(t, "POST", "my-project/roles", map[string]any{"roleId": "own", "role": map[string]any{"title": "my-project-openshift-ingress-gcp",
			"description": ccoctlText, "includedPermissions": []string{"dns.changes.create", "dns.changes.get"}}})
		contains(t, preview(t, w, installation("demo")), "+ projects/my-project/roles/own for serviceAccount:")
	})
}

// A mapping keeps the attributes beside the subject: what others bound to them would be lost.
func TestOtherAttributesStay(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=attributeMapping", map[string]any{"attributeMapping": map[string]string{
			"google.subject": "assertion.aud", "attribute.namespace": "assertion.namespace"}})
		lines := mustApply(t, w, installation("demo"))
		contains(t, state(w), "map[attribute.namespace:assertion.namespace google.subject:assertion.sub]")
		if !slices.Equal(lines, []string{"workload identity provider demo updated",
			"Changed of workload identity provider demo: - google.subject = assertion.aud; + google.subject = assertion.sub"}) {
			t.Errorf("lines %q", lines)
		}
	})
}
