package gcp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp"
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

func (b bent) client() *gcp.Client {
	return gcp.OpenWith(fakegcp.AccessToken, gcp.Access{Project: "my-project", Transport: b})
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
				w.policy(t, "my-project/serviceAccounts/demo-openshift-i-ixn3w@my-project.iam.gserviceaccount.com", owner)
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
