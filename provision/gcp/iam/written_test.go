package iam_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/test/fakegcp"
)

// swallowing is a way to Google on which some requests end: they are answered with 200, and Google never has them.
type swallowing struct {
	*world
	answer func(r *http.Request) string // empty for what reaches Google
}

func (s swallowing) RoundTrip(r *http.Request) (*http.Response, error) {
	if said := s.answer(r); said != "" {
		return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(said))}, nil
	}
	return s.world.RoundTrip(r)
}

// writes are the calls that write, by method and the end of the path.
var writes = []struct {
	method, path string
	fresh        bool   // made where nothing is there yet, else where all has drifted
	others       string // an answer about something else
	line         string // how what reports the write begins
}{
	{"POST", "/workloadIdentityPools", true, `{"name":"projects/123456789012/locations/global/workloadIdentityPools/demo","state":"ACTIVE"}`, "Workload identity pool created"},
	{"POST", "/providers", true, `{"name":"","done":true}`, "workload identity provider created"},
	{"POST", "/serviceAccounts", true, `{"email":"other@my-project.iam.gserviceaccount.com","uniqueId":"1"}`, "IAM service account"},
	{"POST", ".iam.gserviceaccount.com:setIamPolicy", true, `{"etag":"BwX","version":3,"bindings":[]}`, "Updated policy bindings"},
	{"POST", "/roles", true, `{"name":"projects/my-project/roles/other","etag":"BwX"}`, "IAM custom role"},
	{"POST", "projects/my-project:setIamPolicy", true, `{"bindings":[{"role":"roles/owner","members":["user:boss@example.com"]}]}`, "Updated the IAM policy"},
	{"PATCH", "/workloadIdentityPools/demo", false, `{"name":"projects/123456789012/locations/global/workloadIdentityPools/demo","state":"ACTIVE"}`, "Workload identity pool demo updated"},
	{"PATCH", "/providers/demo", false, `{"done":true}`, "workload identity provider demo updated"},
	{"PATCH", ".iam.gserviceaccount.com", false, `{"displayName":"other"}`, "IAM service account demo-openshift-ingress-gcp updated"},
	{"POST", ".iam.gserviceaccount.com:setIamPolicy", false, `{"etag":"BwX","version":3,"bindings":[]}`, "Updated policy bindings"},
	{"PATCH", "/roles/myproject_openshiftingressgcp", false, `{"name":"projects/my-project/roles/other","etag":"BwX"}`, "Existing IAM custom role"},
	{"POST", "projects/my-project:setIamPolicy", false, `{"etag":"BwX","bindings":[]}`, "Updated the IAM policy"},
}

// A write counts as made when the answer is about what was written: 200 alone may be anybody's. What is not there is not reported, and the
// next run makes it.
func TestAWriteIsBelievedByWhatIsAnswered(t *testing.T) {
	for _, tt := range writes {
		for _, said := range []string{"{}", "null", `{"error":{"code":403,"status":"PERMISSION_DENIED","message":"no"}}`, tt.others} {
			t.Run(tt.method+" "+tt.path+" "+said, func(t *testing.T) {
				inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
					want := installation("demo")
					if !tt.fresh {
						mustApply(t, w, want)
						account := "my-project/serviceAccounts/" + email(t, w, want, 1)
						drifted(t, w, want)
						w.Do(t, "PATCH", account, map[string]any{"serviceAccount": map[string]string{"displayName": "x"}, "updateMask": "displayName"})
					}
					lines, err := apply(t.Context(), iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: swallowing{w, func(r *http.Request) string {
						if r.Method != tt.method || !strings.HasSuffix(r.URL.Path, tt.path) {
							return ""
						}
						return said
					}}}), want)
					if err == nil || !strings.Contains(err.Error(), "so nothing says that it was made: see what is between here and Google") {
						t.Errorf("error %v", err)
					}
					if strings.Contains("\n"+strings.Join(lines, "\n"), "\n"+tt.line) {
						t.Errorf("it reports %q", lines)
					}
					mustApply(t, w, want)
					finished(t, w, want)
				})
			})
		}
	}
}

// An error that comes with 200 ends also what Google answers with nothing.
func TestAnErrorIsNoEmptyAnswer(t *testing.T) {
	for _, tt := range []struct{ method, path string }{{"POST", ":enable"}, {"DELETE", ""}} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			mustApply(t, w, want)
			w.Do(t, "POST", "my-project/serviceAccounts/"+email(t, w, want, 1)+":disable", struct{}{})
			c := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: swallowing{w, func(r *http.Request) string {
				if r.Method == tt.method && strings.HasSuffix(r.URL.Path, tt.path) && strings.Contains(r.URL.Path, "/serviceAccounts/") {
					return `{"error":{"code":403,"message":"no"}}`
				}
				return ""
			}}})
			began := time.Now()
			var err error
			if tt.method == "DELETE" {
				p, planErr := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true})
				check(t, planErr)
				_, err = carryOut(t.Context(), p)
			} else {
				_, err = apply(t.Context(), c, want)
			}
			if err == nil || !strings.Contains(err.Error(), "was answered with 200 and an error") || time.Since(began) > time.Minute {
				t.Errorf("%s %s: after %v: %v", tt.method, tt.path, time.Since(began), err)
			}
		})
	}
}

// Of an operation counts what was answered about it last, and only about it.
func TestAnOperationIsBelievedByItsOwnAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		said  func(name string) string // what one look at the operation is answered with
		fails bool
	}{
		"an error for one look":        {func(string) string { return `{"error":{"code":14,"message":"busy"}}` }, false},
		"nothing":                      {func(string) string { return `{}` }, false},
		"the error of the operation":   {func(n string) string { return `{"name":"` + n + `","done":true,"error":{"code":3,"message":"no"}}` }, true},
		"an operation of another kind": {func(n string) string { return `{"name":"` + n + `x","done":true}` }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, fakegcp.Options{OperationDelay: 3 * time.Second}, func(t *testing.T, w *world) {
				want := installation("demo")
				want.Provider, want.Accounts = nil, nil
				looks := 0
				c := bent{w, func(r *http.Request) string {
					if !strings.Contains(r.URL.Path, "/operations/") {
						return ""
					}
					if looks++; looks > 1 && !tt.fails {
						return ""
					}
					return tt.said(strings.TrimPrefix(r.URL.Path, "/v1/"))
				}}.client()
				lines, err := apply(t.Context(), c, want)
				if tt.fails != (err != nil) || !tt.fails && !strings.Contains(state(w), "pool projects/123456789012/locations/global/workloadIdentityPools/demo ACTIVE") {
					answer, _ := json.Marshal(lines)
					t.Errorf("%s, %v; there is\n%s", answer, err, state(w))
				}
			})
		})
	}
}
