package iam_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

// A first run makes everything, and a second writes nothing.
func TestInstallation(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Provider.Audiences = []string{"openshift", "other"}
		mustApply(t, w, want)
		contains(t, state(w), "pool projects/123456789012/locations/global/workloadIdentityPools/demo ACTIVE",
			"{Issuer:https://oidc.example.com/demo Discovery: Audiences:[openshift other] JWKS:}", "map[google.subject:assertion.sub]",
			`"demo-openshift-ingress-gcp" "Created By OpenShift ccoctl for service account demo-openshift-ingress-gcp; installation demo"`,
			`role projects/my-project/roles/myproject_openshiftingressgcp "my-project-openshift-ingress-gcp" "Created By OpenShift ccoctl for service account `+
				`demo-openshift-ingress-gcp" GA [dns.changes.create dns.changes.get]`,
			"principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/subject/system:serviceaccount:ns-a:node")
		finished(t, w, want)
		if n := len(w.Calls()); n != 10 {
			t.Errorf("%d calls for a second run, want one for each thing, and one list of accounts", n)
		}
	})
}

const poolPath = "my-project/locations/global/workloadIdentityPools/demo"

// Each difference is shown, and made good.
func TestDrift(t *testing.T) {
	t.Parallel()
	pool, provider := poolPath, poolPath+"/providers/demo"
	role := "my-project/roles/myproject_openshiftingressgcp"
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, w *world, email string)
		shown  []string
	}{
		{"pool disabled", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", pool+"?updateMask=disabled", map[string]any{"disabled": true})
		}, []string{"~ update workload identity pool demo", "- disabled"}},
		{"pool deleted", func(t *testing.T, w *world, _ string) { w.Do(t, "DELETE", pool, nil) },
			[]string{"~ update workload identity pool demo", "+ brought back: it was deleted", "~ update workload identity provider"}},
		{"provider disabled", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", provider+"?updateMask=disabled", map[string]any{"disabled": true})
		}, []string{"~ update workload identity provider", "- disabled"}},
		{"provider deleted and changed", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", provider+"?updateMask=oidc.allowedAudiences", map[string]any{"oidc": map[string]any{"allowedAudiences": []string{"x"}}})
			w.Do(t, "DELETE", provider, nil)
		}, []string{"+ brought back: it was deleted", "- audience x", "+ audience openshift"}},
		{"audiences", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", provider+"?updateMask=oidc.allowedAudiences", map[string]any{"oidc": map[string]any{"allowedAudiences": []string{"x"}}})
		}, []string{"- audience x", "+ audience openshift"}},
		{"mapping", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", provider+"?updateMask=attributeMapping", map[string]any{"attributeMapping": map[string]string{"google.subject": "assertion.aud"}})
		}, []string{"- google.subject = assertion.aud", "+ google.subject = assertion.sub"}},
		{"upload", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", provider+"?updateMask=oidc.jwksJson", map[string]any{"oidc": map[string]any{"jwksJson": `{"keys":[{"kty":"RSA","kid":"k1","n":"AQAB","e":"AQAB"}]}`}})
		}, []string{"- uploaded key in a form that cannot be read", "+ keys as published by https://oidc.example.com/demo", "warning: Google fetches the keys"}},
		{"account deleted", func(t *testing.T, w *world, email string) {
			w.Do(t, "DELETE", "my-project/serviceAccounts/"+email, nil)
		},
			[]string{"+ create IAM service account", "- roles/storage.admin for deleted:serviceAccount:", "+ roles/storage.admin for serviceAccount:"}},
		{"account disabled", func(t *testing.T, w *world, email string) {
			w.Do(t, "POST", "my-project/serviceAccounts/"+email+":disable", struct{}{})
		}, []string{"~ update IAM service account", "- disabled"}},
		{"account renamed", func(t *testing.T, w *world, email string) {
			w.Do(t, "PATCH", "my-project/serviceAccounts/"+email, map[string]any{"serviceAccount": map[string]string{"displayName": "x"}, "updateMask": "displayName"})
		}, []string{"- display name x", "+ display name demo-openshift-image-registry-gcs"}},
		{"a subject too few and one too many", func(t *testing.T, w *world, email string) {
			w.ChangePolicy(t, "my-project/serviceAccounts/"+email, func(p *fakegcp.Policy) {
				p.Bindings[0].Members = []string{strings.Replace(p.Bindings[0].Members[0], subject, "system:serviceaccount:ns-a:gone", 1)}
			})
		}, []string{"subject/system:serviceaccount:ns-a:gone", "+ roles/iam.workloadIdentityUser for principal://", "can no longer be used by system:serviceaccount:ns-a:gone"}},
		{"one too many: every subject of the pool", func(t *testing.T, w *world, email string) {
			w.ChangePolicy(t, "my-project/serviceAccounts/"+email, func(p *fakegcp.Policy) {
				pool, _, _ := strings.Cut(p.Bindings[0].Members[0], "/subject/")
				p.Bindings[0].Members = append(p.Bindings[0].Members, strings.Replace(pool, "principal://", "principalSet://", 1)+"/*")
			})
		}, []string{"- roles/iam.workloadIdentityUser for principalSet://", "/*"}},
		{"a role too few and one too many", func(t *testing.T, w *world, email string) {
			w.project(t, func(p *fakegcp.Policy) {
				i := slices.IndexFunc(p.Bindings, func(b fakegcp.Binding) bool { return b.Role == "roles/storage.admin" })
				p.Bindings[i].Role = "roles/owner"
			})
		}, []string{"- roles/owner for serviceAccount:", "+ roles/storage.admin for serviceAccount:"}},
		{"role deleted after it shrank", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", role+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.create"}})
			w.Do(t, "DELETE", role, nil)
		}, []string{"~ update IAM custom role", "+ brought back: it was deleted", "+ permission dns.changes.get"}},
		{"role without effect", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", role+"?updateMask=stage", map[string]any{"stage": "DISABLED"})
		}, []string{"- stage DISABLED", "+ stage GA"}},
		{"role too small", func(t *testing.T, w *world, _ string) {
			w.Do(t, "PATCH", role+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.create"}})
		}, []string{"+ permission dns.changes.get"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, fakegcp.Options{ConsistencyDelay: 20 * time.Second, AccountDelay: 40 * time.Second, OperationPolls: 2, OperationDelay: 3 * time.Second},
				func(t *testing.T, w *world) {
					want := installation("demo")
					want.Accounts.Prune = strings.Contains(tt.name, "too many")
					mustApply(t, w, want)
					settle(w)
					before, email := state(w), email(t, w, want, 0)
					tt.change(t, w, email)
					settle(w)
					contains(t, preview(t, w, want), tt.shown...)
					lines := mustApply(t, w, want)
					if len(lines) == 0 {
						t.Error("no line for what was changed")
					}
					settle(w)
					if after := state(w); after != before {
						t.Errorf("afterwards there is\n%s\nwant\n%s", after, before)
					}
					finished(t, w, want)
				})
		})
	}
}

// settle waits until everybody sees everything.
func settle(*world) { time.Sleep(time.Hour) }

// email is that of the i-th account.
func email(t *testing.T, w *world, want iam.Wanted, i int) string {
	t.Helper()
	p, err := w.client().Plan(t.Context(), want)
	check(t, err)
	return p.Emails[i]
}

// What others put into policies, roles and providers survives every run.
func TestStrangersSurvive(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		condition := &fakegcp.Condition{Title: "until", Expression: "request.time < timestamp('2030-01-01T00:00:00Z')"}
		w.project(t, func(p *fakegcp.Policy) {
			p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/owner", Members: []string{"user:a@example.com"}},
				fakegcp.Binding{Role: "roles/viewer", Members: []string{"user:b@example.com"}, Condition: condition},
				fakegcp.Binding{Role: "roles/storage.admin", Members: []string{"user:c@example.com"}},
				fakegcp.Binding{Role: "roles/viewer", Members: []string{"deleted:serviceAccount:x@my-project.iam.gserviceaccount.com?uid=1"}})
		})
		want := installation("demo")
		mustApply(t, w, want)
		mail := email(t, w, want, 0)
		w.project(t, func(p *fakegcp.Policy) {
			p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/viewer", Members: []string{"serviceAccount:" + mail}, Condition: condition})
		})
		w.ChangePolicy(t, "my-project/serviceAccounts/"+mail, func(p *fakegcp.Policy) {
			p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/iam.serviceAccountTokenCreator", Members: []string{"user:d@example.com"}},
				fakegcp.Binding{Role: "roles/iam.workloadIdentityUser",
					Members: []string{"principal://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/other/subject/x"}},
				fakegcp.Binding{Role: "roles/iam.workloadIdentityUser", Condition: condition,
					Members: []string{"principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/subject/on-call",
						"principalSet://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/attribute.x/y"}})
		})
		kept := []string{"roles/owner [user:a@example.com]", "user:b@example.com] &{until", "roles/storage.admin [serviceAccount:" + mail + " user:c@example.com]",
			"deleted:serviceAccount:x@", "roles/iam.serviceAccountTokenCreator [user:d@example.com]", "workloadIdentityPools/other/subject/x", "/demo/subject/on-call"}
		contains(t, state(w), kept...)
		finished(t, w, want)
		text := preview(t, w, want)
		contains(t, text, "has the role roles/viewer on a condition, which stays", "can be used from projects/1/locations/global/workloadIdentityPools/other too")
		if strings.Contains(text, "can be used from projects/123456789012/") {
			t.Errorf("a set of the installation's own pool is another pool in\n%s", text)
		}
		want.Accounts.List = want.Accounts.List[:1]
		want.Accounts.List[0].Roles, want.Accounts.All, want.Accounts.Prune = []string{"roles/storage.objectAdmin"}, false, true
		mustApply(t, w, want)
		kept[2] = "roles/storage.admin [user:c@example.com]"
		contains(t, state(w), kept...)
	})
}

// Somebody else writes between our read and our write, twice.
func TestConcurrentPolicyWriter(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		p, err := w.client().Plan(t.Context(), installation("demo"))
		check(t, err)
		busy, n := false, 0
		w.OnCall(func(_ int, c fakegcp.Call) {
			if c.Action != "GetProjectIamPolicy" || busy || n == 2 {
				return
			}
			busy = true
			n++
			w.project(t, func(p *fakegcp.Policy) {
				p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/viewer", Members: []string{fmt.Sprintf("user:u%d@example.com", n)}})
			})
			busy = false
		})
		_, err = carryOut(t.Context(), p.Plan)
		check(t, err)
		contains(t, state(w), "roles/viewer [user:u1@example.com user:u2@example.com]")
		finished(t, w, installation("demo"))
	})
}

// A stop at any call, and then another run: the same end, and nothing twice.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	create := func(ctx context.Context, w *world) error {
		_, err := apply(ctx, w.client(), installation("demo"))
		return err
	}
	remove := func(ctx context.Context, w *world) error {
		p, _, err := w.client().PlanDelete(ctx, iam.Deletion{Name: "demo", Pool: "demo", CustomRoles: true})
		if err == nil {
			_, err = carryOut(ctx, p)
		}
		return err
	}
	for name, run := range map[string]func(context.Context, *world) error{"create": create, "delete": remove} {
		reference, calls := "", 0
		for n := 0; n <= calls; n++ {
			inWorld(t, fakegcp.Options{OperationDelay: 2 * time.Second}, func(t *testing.T, w *world) {
				w.project(t, func(p *fakegcp.Policy) {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/owner", Members: []string{"user:a@example.com"}})
				})
				if name == "delete" {
					mustApply(t, w, installation("demo"))
				}
				w.ResetCalls()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w.OnCall(func(at int, _ fakegcp.Call) {
					if at == n {
						w.Cut()
						cancel()
					}
				})
				err := run(ctx, w)
				if n == 0 {
					check(t, err)
					reference, calls = state(w), len(w.Calls())
					return
				}
				if err == nil && n < calls {
					t.Errorf("%s, killed at call %d: no error", name, n)
				}
				w.OnCall(nil)
				w.Mend()
				check(t, run(t.Context(), w))
				if after := state(w); after != reference {
					t.Errorf("%s, killed at call %d, there is\n%s\nwant\n%s", name, n, after, reference)
				}
				if name == "create" {
					finished(t, w, installation("demo"))
				}
			})
		}
		if calls < 12 {
			t.Errorf("only %d calls to %s", calls, name)
		}
	}
}

// Two clusters of one project share custom roles and nothing else.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		one, two := installation("demo-x"), installation("demo-x-openshift") // the display names of the second begin as those of the first
		mustApply(t, w, one)
		mustApply(t, w, two)
		finished(t, w, one)
		finished(t, w, two)
		both := state(w)
		contains(t, both, "roles/myproject_openshiftingressgcp [serviceAccount:demo-x-opens-openshift-i-")
		p, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo-x", Pool: "demo-x", CustomRoles: true})
		check(t, err)
		contains(t, shown(t, p), "note: IAM custom role my-project-openshift-ingress-gcp stays: serviceAccount:demo-x-opens-openshift-i-")
		if state(w) != both {
			t.Error("a plan has changed something")
		}
		lines, err := carryOut(t.Context(), p)
		check(t, err)
		contains(t, strings.Join(lines, "\n"), "IAM service account demo-x-openshift-ingress-gcp deleted", "Workload identity pool demo-x deleted")
		finished(t, w, two)
		if again, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo-x", Pool: "demo-x", CustomRoles: true}); err != nil || !again.Empty() {
			t.Errorf("a second deletion: %v\n%s", err, shown(t, again))
		}
		p, _, err = w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo-x-openshift", Pool: "demo-x-openshift", CustomRoles: true})
		check(t, err)
		_, err = carryOut(t.Context(), p)
		check(t, err)
		rest := state(w)
		for _, gone := range []string{"account", "policy of"} {
			if strings.Contains(rest, "\n"+gone) || strings.HasPrefix(rest, gone) {
				t.Errorf("after both were deleted there is\n%s", rest)
			}
		}
		if strings.Contains(rest, "ACTIVE") || strings.Contains(rest, "deleted=false") {
			t.Errorf("after both were deleted there is\n%s", rest)
		}
	})
}

// Two clusters of one pool: neither's deletion takes the pool away while the other has accounts in it.
func TestTwoClustersInOnePool(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		one, two := installation("demo"), installation("other")
		two.Pool, two.Provider, two.Accounts.Pool = nil, nil, "demo"
		mustApply(t, w, one)
		mustApply(t, w, two)
		ccoctlAccount(t, w, "third-x5b68", "third-registry", "demo", subject)
		both := state(w)
		_, _, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo", Pool: "demo"})
		if err == nil {
			t.Fatal("a pool that others use would go")
		}
		contains(t, err.Error(), "workload identity pool demo would go too", "other-openshift-ingress-gcp (", "third-registry (third-x5b68@")
		if strings.Contains(err.Error(), "demo-openshift") || state(w) != both {
			t.Errorf("error %v; there is\n%s", err, state(w))
		}
		for _, d := range []iam.Deletion{{Name: "other", Pool: "other"}, {Name: "third", Pool: "demo"}, {Name: "demo", Pool: "demo"}} {
			p, _, err := w.client().PlanDelete(t.Context(), d)
			check(t, err)
			_, err = carryOut(t.Context(), p)
			check(t, err)
		}
		if rest := state(w); strings.Contains("\n"+rest, "\naccount ") || strings.Contains(rest, "ACTIVE") {
			t.Errorf("there is\n%s", rest)
		}
	})
}

// Throttled, unavailable, slow to show: it takes longer, and says so.
func TestSlowCloud(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{ConsistencyDelay: time.Minute, AccountDelay: 90 * time.Second, PoolDelay: 2 * time.Minute, OperationDelay: 30 * time.Second, OperationPolls: 3,
		WritesPerSecond: 0.5, FederationWritesPerMinute: 2, PageSize: 1}, func(t *testing.T, w *world) {
		var calls atomic.Int32
		w.Fault(func(fakegcp.Call) fakegcp.Fault {
			if calls.Add(1)%11 == 0 { // with 5 and 7 one call may be out of step with the writes that are let through ten times
				return fakegcp.Unavailable()
			}
			return fakegcp.Fault{}
		})
		var told []string
		c := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: w, OnWait: waits(&told)})
		_, err := apply(t.Context(), c, installation("demo"))
		check(t, err)
		w.Fault(nil)
		settle(w)
		finished(t, w, installation("demo"))
		if len(told) == 0 {
			t.Error("minutes have passed without a word")
		}
		for _, line := range told {
			if !strings.Contains(line, " so far): ") {
				t.Errorf("told %q", line)
			}
		}
	})
}

// The answer to each write is lost once: the same end, and nothing twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	reference := ""
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		reference = state(w)
	})
	for _, delay := range []time.Duration{0, 30 * time.Second} {
		inWorld(t, fakegcp.Options{ConsistencyDelay: delay, AccountDelay: delay, OperationDelay: delay / 10}, func(t *testing.T, w *world) {
			var mu sync.Mutex
			lost := map[string]bool{}
			w.Fault(func(c fakegcp.Call) fakegcp.Fault {
				mu.Lock()
				defer mu.Unlock()
				key := c.Path + c.Body
				if !c.Write || lost[key] {
					return fakegcp.Fault{}
				}
				lost[key] = true
				return fakegcp.Fault{Lost: true}
			})
			lines := mustApply(t, w, installation("demo"))
			if len(lost) != 11 || len(lines) != 11 {
				t.Errorf("%d answers were lost, lines %q", len(lost), lines)
			}
			w.Fault(nil)
			settle(w)
			if after := state(w); after != reference {
				t.Errorf("there is\n%s\nwant\n%s", after, reference)
			}
			finished(t, w, installation("demo"))
		})
	}
}

// Of an account that was just made, Google may say that a permission is missing.
func TestNewAccountIsDenied(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		action string
		lasts  time.Duration
		denied bool
	}{
		{"GetServiceAccountIamPolicy", 40 * time.Second, false},
		{"SetServiceAccountIamPolicy", 40 * time.Second, false},
		{"GetServiceAccountIamPolicy", time.Hour, true},
		{"SetServiceAccountIamPolicy", time.Hour, true},
		{"CreateServiceAccount", time.Second, true},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			start := time.Now()
			w.Fault(func(c fakegcp.Call) fakegcp.Fault {
				if strings.HasSuffix(c.Action, tt.action) && time.Since(start) < tt.lasts {
					return fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "Permission 'x' denied on resource (or it may not exist).")
				}
				return fakegcp.Fault{}
			})
			_, err := apply(t.Context(), w.client(), installation("demo"))
			if (err != nil) != tt.denied || tt.denied && problemOf(err) != rest.Denied || time.Since(start) > 2*time.Minute {
				t.Errorf("%s denied for %s: %v after %s", tt.action, tt.lasts, err, time.Since(start))
			}
			w.Fault(nil)
			mustApply(t, w, installation("demo"))
			finished(t, w, installation("demo"))
		})
	}
}

// Two components that shared an account would each have what both are permitted: names are cut, and then come to the same.
func TestTwoRequestsShareNoAccount(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", 49)
	list := []iam.Account{{Name: long + "-a", For: "CredentialsRequest a"}, {Name: long + "-b", For: "CredentialsRequest b"}}
	err := iam.Accounts{Owner: federation.OwnedBy("demo"), List: list}.Check()
	if want := "CredentialsRequest a and CredentialsRequest b come to the same service account demo-" + long + ": drop one of them"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	roles := []iam.Account{{Name: "foo-bar", For: "CredentialsRequest a", Permissions: []string{"a.b.c"}}, {Name: "foobar", For: "CredentialsRequest b", Permissions: []string{"a.b.d"}}}
	err = iam.Accounts{Owner: federation.OwnedBy("demo"), List: roles}.Check()
	if want := "CredentialsRequest a and CredentialsRequest b come to the same custom role foobar: drop one of them"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if err := (iam.Accounts{Owner: federation.OwnedBy("demo"), List: list[:1]}).Check(); err != nil {
		t.Error(err)
	}
}
