package iam_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
)

// bent is a way to Google on which somebody changes what it answers.
type bent struct {
	*world
	answer func(r *http.Request) string // empty for what Google answers
}

func (b bent) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.world.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if said := b.answer(r); said != "" {
		res.Body, res.ContentLength, res.StatusCode, res.Status = io.NopCloser(strings.NewReader(said)), int64(len(said)), http.StatusOK, "200 OK"
	}
	return res, nil
}

func (b bent) client() *iam.Client {
	return iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: b})
}

// An answer that is no policy would be written back as the whole policy.
func TestAnEmptyPolicyIsNotWritten(t *testing.T) {
	for _, of := range []string{"my-project:getIamPolicy", "/serviceAccounts/demo-openshift-i-ixn3w@my-project.iam.gserviceaccount.com:getIamPolicy"} {
		for _, said := range []string{"{}", "null", `{"version":3,"bindings":[]}`} {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				mustApply(t, w, installation("demo"))
				owner := func(p *fakegcp.Policy) {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/owner", Members: []string{"user:boss@example.com"}})
				}
				w.project(t, owner)
				w.ChangePolicy(t, "my-project/serviceAccounts/demo-openshift-i-ixn3w@my-project.iam.gserviceaccount.com", owner)
				before := state(w)
				c := bent{w, func(r *http.Request) string {
					if strings.HasSuffix(r.URL.Path, of) {
						return said
					}
					return ""
				}}.client()
				if _, err := apply(t.Context(), c, installation("demo")); err == nil || !strings.Contains(err.Error(), "has no etag") {
					t.Errorf("%s %s: error %v", of, said, err)
				}
				if after := state(w); after != before {
					t.Errorf("%s %s:\n%s\nwas\n%s", of, said, after, before)
				}
			})
		}
	}
}

// What is held is read as strictly as by gates: where readers differ, Google may have other keys than those that one of them sees.
func TestAnAmbiguousUploadIsReplaced(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		const key = `{"kty":"EC","alg":"ES256","use":"sig","kid":%q,"crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`
		want := installation("demo")
		want.Accounts, want.Provider.JWKS = nil, jwks(key, "k1")
		mustApply(t, w, want)
		wrote := 0
		c := bent{w, func(r *http.Request) string {
			if r.Method == http.MethodPatch {
				wrote++
			}
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/providers/demo") || wrote > 0 {
				return ""
			}
			held := strings.TrimSuffix(string(jwks(rsaKey, "evil")), "}") + `,"KEYS":[` + fmt.Sprintf(key, "k1") + `]}`
			answer, err := json.Marshal(map[string]any{"state": "ACTIVE", "description": "Created By OpenShift ccoctl; installation demo",
				"oidc": map[string]string{"issuerUri": issuerURL, "jwksJson": held}})
			check(t, err)
			return string(answer)
		}}.client()
		to := *want.Provider
		if changed, err := c.UploadKeys(t.Context(), to); err != nil || !changed || wrote != 1 {
			t.Errorf("changed %t, %d writes, %v", changed, wrote, err)
		}
		if changed, err := c.UploadKeys(t.Context(), to); err != nil || changed || wrote != 1 {
			t.Errorf("again: changed %t, %d writes, %v", changed, wrote, err)
		}
	})
}

// A provider that shows no attribute mapping gets the one that is needed.
func TestAProviderWithoutAMapping(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		c := bent{w, func(r *http.Request) string {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/providers/demo") {
				return ""
			}
			return `{"state":"ACTIVE","description":"Created By OpenShift ccoctl; installation demo","oidc":{"issuerUri":"` + issuerURL + `","allowedAudiences":["openshift"]}}`
		}}.client()
		p, err := c.Plan(t.Context(), installation("demo"))
		check(t, err)
		contains(t, shown(t, p.Plan), "~ update workload identity provider", "+ google.subject = assertion.sub")
	})
}

// An answer about another project names nothing that goes into a path, a policy or a Secret.
func TestAnswersOfAnotherProject(t *testing.T) {
	for _, tt := range []struct{ asked, said string }{
		{"123456789012", `{"projectId":"123456789012","projectNumber":"666666666666","lifecycleState":"ACTIVE"}`},
		{"123456789012", `{"projectId":"my-project/../evil","projectNumber":"123456789012","lifecycleState":"ACTIVE"}`},
		{"123456789012", `{"projectId":"","projectNumber":"123456789012","lifecycleState":"ACTIVE"}`},
		{"my-project", `{"projectId":"my-project","projectNumber":"12/3","lifecycleState":"ACTIVE"}`},
		{"my-project", `{"projectId":"evil-project","projectNumber":"123456789012","lifecycleState":"ACTIVE"}`},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			b := bent{w, func(*http.Request) string { return tt.said }}
			if p, err := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: tt.asked, Transport: b}).Project(t.Context()); problemOf(err) != iam.WrongProject {
				t.Errorf("%s, asked for %s: %+v, %v", tt.said, tt.asked, p, err)
			}
		})
	}
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		account := func(project, email string) *iam.Client {
			return bent{w, func(r *http.Request) string {
				if !strings.HasSuffix(r.URL.Path, "/serviceAccounts") || r.Method != http.MethodGet {
					return ""
				}
				return fmt.Sprintf(`{"accounts":[{"projectId":%q,"email":%q,"uniqueId":"1","displayName":"demo-openshift-image-registry-gcs","description":"Created By OpenShift ccoctl for service account demo-openshift-image-registry-gcs"}]}`, project, email)
			}}.client()
		}
		if _, err := account("evil-project", "evil-1@evil-project.iam.gserviceaccount.com").Plan(t.Context(), want); problemOf(err) != iam.WrongProject || !strings.Contains(err.Error(), `one of project "evil-project"`) {
			t.Errorf("an account of another project: %v", err)
		}
		for _, email := range []string{"evil-1@evil-project.iam.gserviceaccount.com", `x","audience":"evil@my-project.iam.gserviceaccount.com`} {
			p, err := account("my-project", email).Plan(t.Context(), want)
			if err != nil || slices.Contains(p.Emails, email) {
				t.Errorf("%s: %q, %v", email, p.Emails, err)
			}
		}
	})
}

// A name in an answer is put into a path only if it is one of what was asked for: nothing is written elsewhere.
func TestNamesOfAnAnswerLeadNowhereElse(t *testing.T) {
	const role = "projects/my-project/roles/myproject_openshiftingressgcp"
	const account = "demo-openshift-i-ixn3w@my-project.iam.gserviceaccount.com"
	for _, tt := range []struct {
		suffix, name, other string // in the answer to a GET whose path ends so, a name is another
	}{
		{"/roles", role, "projects/victim-project/roles/theirs"},
		{"/roles", role, "organizations/42/roles/theirs"},
		{"/roles", role, "projects/my-project/serviceAccounts/123"},
		{"/roles", role, "projects/my-project/roles/../serviceAccounts/123"},
		{"/roles", role, "projects/my-project/roles/.."},
		{"/roles/myproject_openshiftingressgcp", role, "projects/my-project/roles/other"},
		{"/serviceAccounts", `"email":"` + account, `"email":"../../victim-project/serviceAccounts/a@b`},
		{"/serviceAccounts", `"uniqueId":"1`, `"uniqueId":"../../victim-project/serviceAccounts/1`},
		{"/serviceAccounts/" + account, account, "another@my-project.iam.gserviceaccount.com"},
	} {
		for _, remove := range []bool{false, true} {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				mustApply(t, w, installation("demo"))
				before := state(w)
				if !remove { // something that is to be written
					w.Do(t, "PATCH", ingressRole+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.get"}})
					w.Do(t, "PATCH", "my-project/serviceAccounts/"+account, map[string]any{"serviceAccount": map[string]string{"displayName": "x"}, "updateMask": "displayName"})
				}
				var strayed []string
				bentOnce := false
				c := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if strings.Contains(r.URL.Path, "victim-project") || strings.Contains(r.URL.Path, "organizations") || strings.Contains(r.URL.Path, "..") ||
						strings.HasSuffix(r.URL.Path, "/serviceAccounts/123") || r.Method != http.MethodGet && strings.Contains(r.URL.Path, "other") {
						strayed = append(strayed, r.Method+" "+r.URL.Path)
					}
					res, err := w.RoundTrip(r)
					if err != nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, tt.suffix) {
						return res, err
					}
					data, err := io.ReadAll(res.Body)
					said := strings.ReplaceAll(string(data), tt.name, tt.other)
					bentOnce = bentOnce || said != string(data)
					res.Body, res.ContentLength = io.NopCloser(strings.NewReader(said)), int64(len(said))
					return res, err
				})})
				var err error
				if remove {
					var p plan.Plan
					if p, err = c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true}); err == nil {
						_, err = carryOut(t.Context(), p)
					}
				} else {
					_, err = apply(t.Context(), c, installation("demo"))
				}
				asked := bentOnce || !remove // a deletion reads accounts by their unique IDs
				if asked && problemOf(err) != iam.WrongProject || len(strayed) > 0 {
					t.Errorf("%s has %s, deletion %t: error %v, requests %q\nbefore\n%s", tt.suffix, tt.other, remove, err, strayed, before)
				}
			})
		}
	}
	inWorld(t, fakegcp.Options{OperationDelay: time.Second}, func(t *testing.T, w *world) {
		var strayed []string
		c := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "elsewhere") {
				strayed = append(strayed, r.URL.Path)
			}
			res, err := w.RoundTrip(r)
			if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/workloadIdentityPools") {
				res.Body = io.NopCloser(strings.NewReader(`{"name":"projects/elsewhere/secrets/x/operations/../versions/1"}`))
			}
			return res, err
		})})
		if _, err := apply(t.Context(), c, installation("demo")); err == nil || !strings.Contains(err.Error(), "an operation") || len(strayed) > 0 {
			t.Errorf("an operation elsewhere: error %v, requests %q", err, strayed)
		}
	})
}

// An error that comes with 200 is no empty list: a deletion would take a pool with a stranger's provider, or leave all accounts and say
// that nothing is left.
func TestAnErrorIsNoEmptyList(t *testing.T) {
	for _, list := range []string{"/providers", "/serviceAccounts", "/roles"} {
		for _, said := range []string{`{"error":{"code":503,"status":"UNAVAILABLE","message":"x"}}`, `{"error":null}`, "null", "[]"} {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				mustApply(t, w, installation("demo"))
				c := bent{w, func(r *http.Request) string {
					if strings.HasSuffix(r.URL.Path, list) && r.Method == http.MethodGet {
						return said
					}
					return ""
				}}.client()
				if _, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true}); err == nil || !strings.Contains(err.Error(), "the answer is no") {
					t.Errorf("%s %s: error %v", list, said, err)
				}
			})
		}
	}
}

// What is longer than anything that Google says is neither kept nor asked for again.
func TestAnswersThatDoNotEnd(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		asked := 0
		long := func(answer func(page int) string) error {
			asked = 0
			_, err := bent{w, func(r *http.Request) string {
				if !strings.HasSuffix(r.URL.Path, "/serviceAccounts") {
					return ""
				}
				asked++
				return answer(asked)
			}}.client().Plan(t.Context(), installation("demo"))
			return err
		}
		if err := long(func(int) string { return strings.Repeat(" ", 33<<20) + "{}" }); err == nil || !strings.Contains(err.Error(), "the answer has more than 32 MiB") || asked != 1 {
			t.Errorf("one answer, asked %d times: %v", asked, err)
		}
		item := `{"accounts":[{"projectId":"my-project","email":"` + strings.Repeat("x", 22<<20) + `"}],"nextPageToken":"%d"}`
		if err := long(func(page int) string { return fmt.Sprintf(item, page) }); err == nil || !strings.Contains(err.Error(), "the list has more than 64 MiB") || asked != 3 {
			t.Errorf("a list, asked %d times: %v", asked, err)
		}
		padded := `{"padding":"` + strings.Repeat("x", 22<<20) + `","nextPageToken":"%d"}`
		if err := long(func(page int) string { return fmt.Sprintf(padded, page) }); err == nil || !strings.Contains(err.Error(), "the list has more than 64 MiB") || asked != 3 {
			t.Errorf("a list of nothing, asked %d times: %v", asked, err)
		}
		began := time.Now()
		err := long(func(page int) string {
			time.Sleep(20 * time.Second)
			return fmt.Sprintf(`{"nextPageToken":"%d"}`, page)
		})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "the list has not ended after 15m0s, on page 4") || took > 16*time.Minute {
			t.Errorf("a slow list, asked %d times in %v: %v", asked, took, err)
		}
	})
}

// A pool that is disabled or deleted is told with what its provider holds; whoever may not read pools is told nothing of it.
func TestUploadedKeysOfAPoolThatTakesNoToken(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts, want.Provider.JWKS = nil, jwks(rsaKey, "k1")
		mustApply(t, w, want)
		trouble := func(c *iam.Client) string {
			u, err := c.UploadedKeys(t.Context(), "demo", "demo")
			check(t, err)
			return u.Pool
		}
		if got := trouble(w.client()); got != "" {
			t.Errorf("of a good pool: %q", got)
		}
		w.Do(t, "PATCH", "my-project/locations/global/workloadIdentityPools/demo?updateMask=disabled", map[string]any{"disabled": true})
		if got := trouble(w.client()); got != "is disabled" {
			t.Errorf("of a disabled pool: %q", got)
		}
		c := bent{w, func(r *http.Request) string {
			if strings.HasSuffix(r.URL.Path, "/workloadIdentityPools/demo") {
				return `{"state":"DELETED"}`
			}
			return ""
		}}.client()
		if got := trouble(c); got != "is deleted" {
			t.Errorf("of a deleted pool: %q", got)
		}
		denied := roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := w.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/workloadIdentityPools/demo") {
				res.StatusCode, res.Status = http.StatusForbidden, "403 Forbidden"
				res.Body = io.NopCloser(strings.NewReader(`{"error":{"code":403,"status":"PERMISSION_DENIED","message":"Permission 'iam.workloadIdentityPools.get' denied on resource '//iam.googleapis.com/x' (or it may not exist)."}}`))
			}
			return res, err
		})
		if got := trouble(iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: denied})); got != "" {
			t.Errorf("of a pool that nobody may read: %q", got)
		}
	})
}
