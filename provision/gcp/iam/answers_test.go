package iam_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
}

// A pool that is disabled or deleted is told with what its provider holds; whoever may not read pools is told nothing of it.
func TestUploadedKeysOfAPoolThatTakesNoToken(t *testing.T) {
	t.Parallel()
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
