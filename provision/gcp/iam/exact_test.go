package iam_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/test/fakegcp"
)

// What Google allows is taken to the last letter, and one more is not.
func TestCheckIsExact(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct {
		name        string
		change      func(w *iam.Wanted, n int)
		least, most int
	}{
		{"letters of a pool's name", func(w *iam.Wanted, n int) { w.Pool.ID = x(n) }, 4, 32},
		{"letters of a provider's name", func(w *iam.Wanted, n int) { w.Provider.ID = x(n) }, 4, 32},
		{"letters of an installation's name", func(w *iam.Wanted, n int) { w.Accounts.Owner = iam.OwnedBy(x(n)) }, 1, 32},
		{"letters of an account's ID", func(w *iam.Wanted, n int) { w.Accounts.List[0].ID = x(n) }, 6, 30},
		{"bytes of a display name", func(w *iam.Wanted, n int) { w.Accounts.List[0].DisplayName = x(n) }, 1, 100},
		{"characters of an audience", func(w *iam.Wanted, n int) { w.Provider.Audiences = []string{strings.Repeat("ö", n)} }, 1, 256},
		{"characters of a condition", func(w *iam.Wanted, n int) { w.Provider.Condition = strings.Repeat("ö", n) }, 1, 4096},
		{"permissions", func(w *iam.Wanted, n int) {
			w.Accounts.List[1].Permissions = slices.Repeat([]string{"dns.changes.get"}, n)
		}, 1, 3000},
		{"keys to upload", func(w *iam.Wanted, n int) {
			w.Provider.JWKS = jwks(rsaKey, strings.Split(strings.TrimSuffix(strings.Repeat("k,", n), ","), ",")...)
		}, 1, 8},
	} {
		for _, n := range []int{tt.least - 1, tt.least, tt.most, tt.most + 1} {
			if n == 0 {
				continue // means something else, mostly the default
			}
			w := installation("demo")
			tt.change(&w, n)
			if err := w.Check(); (err == nil) != (n >= tt.least && n <= tt.most) {
				t.Errorf("%d %s: %v", n, tt.name, err)
			}
		}
	}
}

// What others have brought to the project is counted: the last member that its policy has room for is added, and one more is an error
// before anything is written. Who only takes away is not held up. A tenth audience fits beside those that stay.
func TestRoomIsUsedUp(t *testing.T) {
	t.Parallel()
	full := func(t *testing.T, w *world, n int) {
		t.Helper()
		w.project(t, func(p *fakegcp.Policy) {
			b := fakegcp.Binding{Role: "roles/viewer"}
			for i := range n {
				b.Members = append(b.Members, fmt.Sprintf("user:u%d@example.com", i))
			}
			p.Bindings = append(p.Bindings, b)
		})
	}
	for _, room := range []int{4, 3} { // an installation takes four
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			full(t, w, 1500-room)
			w.ResetCalls()
			_, err := apply(t.Context(), w.client(), installation("demo"))
			if (err == nil) != (room == 4) || err != nil && (!strings.Contains(err.Error(), "would have 1501 members: Google allows 1500") || w.Writes() > 0) {
				t.Errorf("room for %d: %v after %d writes", room, err, w.Writes())
			}
		})
	}
	for _, others := range []int{1497, 1600} { // with the four of the installation it is more than Google allows
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			c := bent{w, func(r *http.Request) string {
				if !strings.HasSuffix(r.URL.Path, "/my-project:getIamPolicy") {
					return ""
				}
				have := w.State().Project
				have.Bindings = append(slices.Clone(have.Bindings), fakegcp.Binding{Role: "roles/viewer", Members: slices.Repeat([]string{"user:u@example.com"}, others)})
				answer, err := json.Marshal(have)
				check(t, err)
				return string(answer)
			}}.client()
			p, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo"})
			check(t, err)
			contains(t, shown(t, p), "- roles/storage.admin for serviceAccount:")
			more := installation("demo")
			more.Accounts.List[0].Roles = append(more.Accounts.List[0].Roles, "roles/editor")
			if _, err := c.Plan(t.Context(), more); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("would have %d members: Google allows 1500", others+5)) {
				t.Errorf("beside %d others: %v", others, err)
			}
			more.Accounts.List[0].Roles, more.Accounts.Prune = []string{"roles/editor"}, true // as many as before
			_, err = c.Plan(t.Context(), more)
			check(t, err)
		})
	}
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts, want.Provider.Audiences = nil, strings.Fields("a b c d e f g h i")
		mustApply(t, w, want)
		want.Provider.Audiences, want.Provider.KeepAudiences = []string{"j"}, true
		mustApply(t, w, want)
		contains(t, state(w), "Audiences:[a b c d e f g h i j]")
		want.Provider.Audiences = []string{"k"}
		if _, err := w.client().Plan(t.Context(), want); err == nil || !strings.Contains(err.Error(), "would take 11 audiences") {
			t.Errorf("error %v", err)
		}
	})
}

// More accounts than a project usually may have are told of before they are made, and not once they are there.
func TestAccountQuotaIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{AccountLimit: 200}, func(t *testing.T, w *world) {
		other := func(i int) {
			w.Do(t, "POST", "my-project/serviceAccounts", map[string]any{"accountId": fmt.Sprintf("other-%d", i), "serviceAccount": map[string]string{"displayName": "x"}})
		}
		told := func() bool {
			return strings.Contains(preview(t, w, installation("demo")), "note: the project will have 101 service accounts: Google allows 100, unless the quota was raised")
		}
		for i := range 97 { // an installation takes three
			other(i)
		}
		if text := preview(t, w, installation("demo")); strings.Contains(text, "Google allows 100") {
			t.Errorf("of the hundredth account it says\n%s", text)
		}
		other(97)
		if !told() {
			t.Error("of 101 accounts it says nothing")
		}
		mustApply(t, w, installation("demo"))
		if told() {
			t.Error("it tells of 101 accounts that are there")
		}
	})
}

// Whatever the organisation's policy says about an issuer is kept to before the first write.
func TestOrganisationsPolicy(t *testing.T) {
	t.Parallel()
	for said, allowed := range map[string]bool{
		`{}`:                                   true,
		`{"listPolicy":{"allValues":"ALLOW"}}`: true,
		`{"listPolicy":{"allValues":"DENY"}}`:  false,
		`{"listPolicy":{"deniedValues":["` + issuerURL + `"]}}`:                    false,
		`{"listPolicy":{"deniedValues":["is:` + issuerURL + `"]}}`:                 false,
		`{"listPolicy":{"deniedValues":["is:` + issuerURL + `/x"]}}`:               true,
		`{"listPolicy":{"allowedValues":["` + issuerURL + `"]}}`:                   true,
		`{"listPolicy":{"allowedValues":["https://x.example.com"]}}`:               false,
		`{"listPolicy":{"allowedValues":["is:https://x","is:` + issuerURL + `"]}}`: true,
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			c := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := w.RoundTrip(r)
				if err == nil && strings.HasSuffix(r.URL.Path, ":getEffectiveOrgPolicy") {
					resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
					resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader([]byte(said))), int64(len(said))
					resp.Header = http.Header{"Content-Type": {"application/json"}}
				}
				return resp, err
			})})
			_, err := apply(t.Context(), c, installation("demo"))
			if (err == nil) != allowed || !allowed && (problemOf(err) != iam.IssuerRefused || w.Writes() > 0) {
				t.Errorf("%s: %v after %d writes", said, err, w.Writes())
			}
		})
	}
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
		{"delete", func(t *testing.T, c *iam.Client) {
			p, err := c.PlanDelete(t.Context(), iam.Deletion{Name: "demo", CustomRoles: true})
			check(t, err)
			_, err = carryOut(t.Context(), p)
			check(t, err)
		}, true}, // what is deleted keeps its permissions
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			w.ResetCalls()
			once := false
			tt.do(t, iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
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
				p, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: name, CustomRoles: true})
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
