package iam_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
)

const ccoctlText = "Created By OpenShift ccoctl"

// ccoctlAccount makes an account as ccoctl does, with a random part in its ID.
func ccoctlAccount(t *testing.T, w *world, id, display, pool, sub string) {
	t.Helper()
	w.Do(t, "POST", "my-project/serviceAccounts", map[string]any{"accountId": id, "serviceAccount": map[string]string{
		"displayName": display, "description": ccoctlText + " for service account " + display}})
	if pool == "" {
		return
	}
	w.pool(t, pool)
	w.ChangePolicy(t, "my-project/serviceAccounts/"+id+"@my-project.iam.gserviceaccount.com", func(p *fakegcp.Policy) {
		p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/iam.workloadIdentityUser",
			Members: []string{"principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/" + pool + "/subject/" + sub}})
	})
}

// What ccoctl made is found by its display name and kept, with its ID.
func TestAfterCcoctl(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId=demo", map[string]any{"displayName": "demo", "description": ccoctlText})
		ccoctlAccount(t, w, "demo-openshift-i-x5b68", "demo-openshift-image-registry-gcs", "demo", subject)
		ccoctlAccount(t, w, "demo-openshift-i-aaaaa", "demo-openshift-ingress-gcp", "other", "x") // of an installation "demo-openshift" with a request "ingress-gcp"
		mustApply(t, w, want)
		p, err := w.client().Plan(t.Context(), want)
		check(t, err)
		if p.Emails[0] != "demo-openshift-i-x5b68@my-project.iam.gserviceaccount.com" || strings.HasPrefix(p.Emails[1], "demo-openshift-i-aaaaa") {
			t.Errorf("accounts %q", p.Emails)
		}
		finished(t, w, want)

		ccoctlAccount(t, w, "demo-old-bbbbb", "demo-old", "demo", "y")
		ccoctlAccount(t, w, "demo-unused-ccccc", "demo-unused", "", "")
		contains(t, preview(t, w, want), "? service account demo-old (demo-old-bbbbb@my-project.iam.gserviceaccount.com) is there, and nobody asked for it; --prune deletes it")
		d, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo"})
		check(t, err)
		text := shown(t, d)
		contains(t, text, "- delete IAM service account demo-openshift-i-x5b68@", "- delete IAM service account demo-old-bbbbb@",
			"note: service account demo-unused (demo-unused-ccccc@my-project.iam.gserviceaccount.com) may be of ccoctl's for demo")
		if strings.Contains(text, "aaaaa") {
			t.Errorf("an account that another pool uses is named in\n%s", text)
		}
	})
}

// What is somebody else's is refused, and taken over when that is asked for.
func TestAdoption(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		made  func(t *testing.T, w *world)
		adopt func(w *iam.Wanted)
		said  string
		after string
	}{
		{"pool", func(t *testing.T, w *world) {
			w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId=demo", map[string]any{"description": "mine"})
		}, func(w *iam.Wanted) { w.Pool.Adopt = true }, "workload identity pool demo is somebody else's", `"mine; installation demo"`},
		{"pool, for no installation", func(t *testing.T, w *world) {
			w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId=demo", map[string]any{"description": "of x; installation y"})
		}, func(w *iam.Wanted) { w.Pool.Adopt, w.Pool.Owner = true, federation.Owner{} }, "its description is \"of x; installation y\"", `"` + ccoctlText + `, which took it over: of x"`},
		{"another installation's pool", func(t *testing.T, w *world) {
			w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId=demo",
				map[string]any{"description": ccoctlText + "; installation demo2"})
		}, func(w *iam.Wanted) { w.Pool.Adopt = true }, "workload identity pool demo is somebody else's: its description is \"" + ccoctlText + "; installation demo2\"", `; installation demo"`},
		{"provider", func(t *testing.T, w *world) {
			w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId=demo", map[string]any{"description": ccoctlText})
			w.Do(t, "POST", poolPath+"/providers?workloadIdentityPoolProviderId=demo", map[string]any{"description": "mine",
				"oidc": map[string]any{"issuerUri": "https://x.example.com"}, "attributeMapping": map[string]string{"google.subject": "assertion.sub"}})
		}, func(w *iam.Wanted) { w.Provider.Adopt = true }, "workload identity provider demo is somebody else's", `"mine; installation demo"`},
		{"role", func(t *testing.T, w *world) {
			w.Do(t, "POST", "my-project/roles", map[string]any{"roleId": "myproject_openshiftingressgcp", "role": map[string]any{"title": "t", "description": "mine"}})
		}, func(w *iam.Wanted) { w.Accounts.Adopt = true }, "IAM custom role projects/my-project/roles/myproject_openshiftingressgcp is somebody else's", ccoctlText + ", which took it over: mine"},
		{"account, at the very email that ours would have", func(t *testing.T, w *world) {
			id, _, _ := strings.Cut(email(t, w, installation("demo"), 0), "@")
			w.Do(t, "POST", "my-project/serviceAccounts", map[string]any{"accountId": id, "serviceAccount": map[string]string{"displayName": "mine", "description": "d"}})
		}, func(w *iam.Wanted) { w.Accounts.Adopt = true }, "is somebody else's", `"d; installation demo"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				tt.made(t, w)
				before, want := state(w), installation("demo")
				_, err := apply(t.Context(), w.client(), want)
				if problemOf(err) != rest.NotOwned || !strings.Contains(err.Error(), tt.said) {
					t.Errorf("error %v, want %q", err, tt.said)
				}
				if after := state(w); after != before {
					t.Errorf("changed to\n%s", after)
				}
				tt.adopt(&want)
				mustApply(t, w, want)
				contains(t, state(w), tt.after)
				finished(t, w, installation("demo"))
			})
		})
	}
}

// What nobody asks for any more is told of, and goes with Prune; a role keeps its permissions as long as others have it.
func TestPrune(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		mustApply(t, w, installation("demo2"))
		w.Do(t, "POST", "my-project/serviceAccounts", map[string]any{"accountId": "workload", "serviceAccount": map[string]string{"displayName": "demo-w", "description": "x"}})
		less := installation("demo")
		less.Accounts.List = less.Accounts.List[1:]
		less.Accounts.List[0].Permissions = []string{"dns.changes.create"}
		contains(t, preview(t, w, less), "? service account demo-openshift-image-registry-gcs (", "note: role my-project-openshift-ingress-gcp keeps 1 permission that nobody asked for here")
		if lines := mustApply(t, w, less); len(lines) > 0 {
			t.Errorf("without Prune: %q", lines)
		}
		less.Accounts.Prune = true
		text := preview(t, w, less)
		contains(t, text, "- delete IAM service account demo-openshift-i-", "- roles/storage.admin for serviceAccount:demo-openshift-i-")
		if strings.Contains(text, "- permission ") { // of the role that the other installation has too
			t.Errorf("the other installation loses a permission in\n%s", text)
		}
		p, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo2", Pool: "demo2"})
		check(t, err)
		_, err = carryOut(t.Context(), p)
		check(t, err)
		less.Accounts.Prune = false
		contains(t, preview(t, w, less), "? role my-project-openshift-ingress-gcp has the permission dns.changes.get, which nobody asked for; --prune takes it away")
		less.Accounts.Prune = true
		contains(t, preview(t, w, less), "- permission dns.changes.get")
		contains(t, strings.Join(mustApply(t, w, less), "\n"), "IAM service account demo-openshift-image-registry-gcs deleted",
			"IAM custom role my-project-openshift-ingress-gcp lost what nobody asked for")
		finished(t, w, less)
		contains(t, state(w), "account workload@")
		if strings.Contains(state(w), "storage.admin") {
			t.Errorf("what was pruned is left in\n%s", state(w))
		}
	})
}

// Who got the role since the plan was made keeps what it has: another cluster of the project, at the same time.
func TestPruneRoleThatSomebodyElseGot(t *testing.T) {
	t.Parallel()
	add := func(member string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			w.project(t, func(p *fakegcp.Policy) {
				p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "projects/" + ingressRole, Members: []string{member}})
			})
		}
	}
	for _, tt := range []struct {
		got   func(*testing.T, *world)
		keeps bool
	}{
		{func(t *testing.T, w *world) { mustApply(t, w, installation("demo2")) }, true},
		{add("user:boss@example.com"), true},
		{add("deleted:serviceAccount:old@my-project.iam.gserviceaccount.com?uid=1"), false},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			less := installation("demo")
			less.Accounts.Prune, less.Accounts.List[1].Permissions = true, []string{"dns.changes.create"}
			p, err := w.client().Plan(t.Context(), less)
			check(t, err)
			tt.got(t, w)
			_, err = carryOut(t.Context(), p.Plan)
			if tt.keeps != (err != nil) || tt.keeps != strings.Contains(state(w), "dns.changes.get") ||
				tt.keeps && !strings.Contains(err.Error(), " has it by now; make the plan again") {
				t.Errorf("%v, there is\n%s", err, state(w))
			}
		})
	}
}

// A pool in which others have a provider does not go.
func TestPoolOfOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		// A stranger's, one that ccoctl made for another installation, and one that keypost did.
		for i, description := range []string{"", "Created By OpenShift ccoctl", "Created By OpenShift ccoctl; installation prod-b"} {
			id := fmt.Sprintf("other-%d", i)
			w.Do(t, "POST", poolPath+"/providers?workloadIdentityPoolProviderId="+id, map[string]any{"oidc": map[string]any{"issuerUri": "https://x.example.com"},
				"attributeMapping": map[string]string{"google.subject": "assertion.sub"}, "description": description})
			if _, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo"}); problemOf(err) != rest.NotOwned || !strings.Contains(err.Error(), "/providers/"+id) {
				t.Errorf("%q: error %v", description, err)
			}
			w.Do(t, "DELETE", poolPath+"/providers/"+id, nil)
		}
		w.Do(t, "PATCH", poolPath+"?updateMask=description", map[string]any{"description": "mine"})
		d, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo"})
		check(t, err)
		if text := shown(t, d); strings.Contains(text, "- delete workload identity pool") || !strings.Contains(text, "note: workload identity pool demo is somebody else's") {
			t.Errorf("plan\n%s", text)
		}
	})
}

// A list that is not the whole one does not drive out other audiences.
func TestAudiencesThatStay(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Provider.Audiences = []string{"x"}
		mustApply(t, w, want)
		want.Provider.Audiences, want.Provider.KeepAudiences = []string{"openshift"}, true
		mustApply(t, w, want)
		contains(t, state(w), "Audiences:[x openshift]")
		contains(t, preview(t, w, want), "nothing to change", "note: provider demo takes tokens for the audience x too")
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=attributeCondition", map[string]any{"attributeCondition": "assertion.sub != 'x'"})
		contains(t, preview(t, w, want), "? provider demo has an attribute condition that nobody asked for, and that stays: Google refuses tokens that do not fulfil assertion.sub != 'x'; ")
		mustApply(t, w, want)
		contains(t, state(w), "assertion.sub != 'x'")
		want.Provider.Condition = "assertion.sub != 'y'"
		contains(t, refused(t, w, want, 0), "takes some of them now; create-workload-identity-provider with --adopt changes it")
		want.Provider.Adopt = true
		contains(t, preview(t, w, want), "- attribute condition assertion.sub != 'x'", "+ attribute condition assertion.sub != 'y'")
		mustApply(t, w, want)
		want.Provider.Condition, want.Provider.Adopt = "true", false
		mustApply(t, w, want)
		want.Provider.Condition = ""
		contains(t, preview(t, w, want), "nothing to change")
		want.Provider.KeepAudiences = false
		mustApply(t, w, want)
		contains(t, state(w), "Audiences:[openshift]")
	})
}

// A deletion ends well where another run has done its work, and where the answer to the deletion of a role was lost.
func TestADeletionThatIsDoneAlready(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		lost := false
		c := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := w.RoundTrip(r)
			if err != nil || lost || r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/roles/") {
				return res, err
			}
			lost = true
			return nil, errors.Join(res.Body.Close(), errors.New("connection reset by peer"))
		})})
		mustApply(t, w, installation("demo"))
		var both [2]plan.Plan
		for i := range both {
			p, _, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo", CustomRoles: true})
			check(t, err)
			both[i] = p
		}
		for _, p := range both {
			began := time.Now()
			if _, err := carryOut(t.Context(), p); err != nil || time.Since(began) > time.Minute {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if text := state(w); !lost || strings.Contains("\n"+text, "\naccount ") || strings.Contains(text, "ACTIVE") || strings.Contains(text, "deleted=false") {
			t.Errorf("lost %t, left:\n%s", lost, text)
		}
	})
}

// A pool goes with all that is in it: one that has changed between a deletion's plan and its turn stays.
func TestDeletionChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, w *world)
		said   string
		kept   string
	}{
		{"somebody took the pool over", func(t *testing.T, w *world) {
			w.Do(t, "PATCH", poolPath+"?updateMask=description", map[string]any{"description": "mine"})
		}, "its description has changed meanwhile; make the plan again", "workloadIdentityPools/demo ACTIVE"},
		{"somebody made a provider in the pool", func(t *testing.T, w *world) {
			w.Do(t, "POST", poolPath+"/providers?workloadIdentityPoolProviderId=theirs", map[string]any{"oidc": map[string]any{"issuerUri": "https://x.example.com"},
				"attributeMapping": map[string]string{"google.subject": "assertion.sub"}, "description": "mine"})
		}, "has a provider that is somebody else's, and that would go with it", "providers/theirs ACTIVE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				mustApply(t, w, installation("demo"))
				d, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo"})
				check(t, err)
				tt.change(t, w)
				if _, err = carryOut(t.Context(), d); err == nil || !strings.Contains(err.Error(), tt.said) {
					t.Errorf("error %v, want %q", err, tt.said)
				}
				contains(t, state(w), tt.kept)
			})
		})
	}
}

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

// A deletion takes the roles that its accounts have: no other role of ccoctl's, none of somebody else's making, and none that is deleted already.
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
		p, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo", CustomRoles: true})
		check(t, err)
		var gone []string
		for line := range strings.Lines(shown(t, p)) {
			if _, name, is := strings.Cut(line, "delete IAM custom role projects/my-project/roles/"); is {
				gone = append(gone, strings.TrimSpace(name))
			}
		}
		slices.Sort(gone)
		if strings.Join(gone, " ") != "myproject_openshiftgcpccm myproject_openshiftingressgcp" {
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
			hostile.Accounts.List = []iam.Account{{Name: name, Permissions: []string{"dns.changes.list"}, Subjects: []string{subject}}}
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
