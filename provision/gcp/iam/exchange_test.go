package iam_test

import (
	"bytes"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/keys"
)

// call makes a call as a workload does, and returns a member of the answer; empty for a refusal.
func (w *world) call(t *testing.T, u, bearer, body, member string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u, strings.NewReader(body))
	check(t, err)
	r.Header.Set("Authorization", "Bearer "+bearer)
	res, err := w.RoundTrip(r)
	check(t, err)
	defer res.Body.Close()
	said := map[string]any{}
	check(t, json.NewDecoder(res.Body).Decode(&said))
	token, _ := said[member].(string)
	return token
}

// exchanges returns which subjects get an access token for each account, by signed tokens for each audience.
func (w *world) exchanges(t *testing.T, key cluster.Signer, subjects, audiences []string) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	for _, sub := range subjects {
		for _, aud := range audiences {
			token := key.Sign(t, cluster.Workload(time.Now(), "iss", issuerURL, "sub", sub, "aud", aud))
			form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {token}, "scope": {"https://www.googleapis.com/auth/iam"},
				"audience":           {"//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/providers/demo"},
				"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}, "requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}}
			federated := w.call(t, "https://sts.googleapis.com/v1/token", "", form.Encode(), "access_token")
			for _, a := range w.State().Accounts {
				if federated != "" && a.Deleted == nil && w.call(t, "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+a.Email+":generateAccessToken", federated,
					`{"scope":["https://www.googleapis.com/auth/cloud-platform"]}`, "accessToken") != "" {
					got[fmt.Sprintf("%s for %s as %s", sub, aud, a.Email)] = true
				}
			}
		}
	}
	return got
}

// roles returns the roles that the project's policy gives, a line each.
func (w *world) roles() map[string]bool {
	got := map[string]bool{}
	for _, b := range w.State().Project.Bindings {
		for _, m := range b.Members {
			got[b.Role+" for "+m] = true
		}
	}
	for _, r := range w.State().Roles {
		for _, p := range r.Permissions {
			got[p+" by "+r.Name] = true
		}
	}
	return got
}

// some returns some of a list, and at least one.
func some(r *rand.Rand, list ...string) []string {
	out := []string{list[r.IntN(len(list))]}
	for _, s := range list {
		if s != out[0] && r.IntN(2) == 0 {
			out = append(out, s)
		}
	}
	return out
}

// release is what some release asks for: accounts, their users, roles and permissions, and audiences.
func release(r *rand.Rand, subjects, audiences []string, keys []byte) iam.Wanted {
	w := installation("demo")
	w.Accounts.List, w.Accounts.All = nil, r.IntN(2) == 0
	for _, name := range some(r, "registry", "ingress", "csi-driver") {
		w.Accounts.List = append(w.Accounts.List, iam.Account{Request: name, Subjects: some(r, subjects...), Roles: some(r, "roles/viewer", "roles/compute.viewer", "roles/storage.admin"),
			Permissions: some(r, "dns.changes.create", "dns.changes.get", "compute.zones.list")})
	}
	w.Provider.JWKS, w.Provider.Audiences, w.Provider.KeepAudiences = keys, some(r, audiences...), true
	w.Provider.Condition = some(r, "", "true", "assertion.sub != '"+subject+"'")[0]
	return w
}

// A run without Prune or Adopt never turns an exchange that succeeded into one that fails, nor takes a role or a permission away: a cluster
// is prepared for an upgrade while the old release runs. With Prune a run does both.
func TestARunWithoutPruneTakesNothing(t *testing.T) {
	t.Parallel()
	key := cluster.Signer{KID: "k1", Alg: jose.ES256, Key: keys.EC(elliptic.P256(), 1)}
	public, err := json.Marshal(map[string][]jose.JSONWebKey{"keys": {key.Public()}})
	check(t, err)
	subjects, audiences := []string{subject, "system:serviceaccount:ns-a:node", "system:serviceaccount:ns-b:ingress"}, []string{"openshift", "sts.googleapis.com"}
	pruned, conditions := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			mustApply(t, w, release(r, subjects, audiences, public))
			if r.IntN(2) == 0 { // somebody lets all of the pool in
				w.ChangePolicy(t, "my-project/serviceAccounts/"+w.State().Accounts[0].Email, func(p *fakegcp.Policy) {
					p.Bindings = append(p.Bindings, fakegcp.Binding{Role: "roles/iam.workloadIdentityUser",
						Members: []string{"principalSet://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/*"}})
				})
			}
			exchanged, granted := w.exchanges(t, key, subjects, audiences), w.roles()
			if len(exchanged) == 0 {
				t.Fatal("no exchange succeeds")
			}
			lost := func() (lost bytes.Buffer) {
				now, roles := w.exchanges(t, key, subjects, audiences), w.roles()
				for what := range exchanged {
					if !now[what] {
						fmt.Fprintln(&lost, what)
					}
				}
				for what := range granted {
					if !roles[what] {
						fmt.Fprintln(&lost, what)
					}
				}
				return lost
			}
			next := release(r, subjects, audiences, public)
			if _, err := apply(t.Context(), w.client(), next); err != nil && strings.Contains(err.Error(), "refuses tokens that do not fulfil") {
				conditions++
				next.Provider.Condition = ""
			} else {
				check(t, err)
			}
			mustApply(t, w, next)
			if gone := lost(); gone.Len() > 0 {
				t.Errorf("seed %d: lost are\n%s", seed, &gone)
			}
			next.Accounts.All, next.Accounts.Prune, next.Provider.KeepAudiences = true, true, false
			next.Provider.Condition = "true"
			mustApply(t, w, next)
			finished(t, w, next)
			if gone := lost(); gone.Len() > 0 {
				pruned++
			}
		})
	}
	if pruned == 0 || conditions == 0 {
		t.Errorf("Prune has taken something %d times, %d conditions were refused", pruned, conditions)
	}
}
