package iam_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
)

const (
	issuerURL = "https://oidc.example.com/demo"
	subject   = "system:serviceaccount:ns-a:operator"
)

// world is a project in Google Cloud.
type world struct{ *fakegcp.Direct }

// inWorld runs f with a project, in time that passes only when everybody waits.
func inWorld(t *testing.T, o fakegcp.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &world{fakegcp.NewDirect(o)}) })
}

func (w *world) client() *iam.Client {
	return iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: w})
}

// project changes the project's policy as somebody else does.
func (w *world) project(t *testing.T, change func(p *fakegcp.Policy)) {
	t.Helper()
	w.ChangePolicy(t, "my-project", change)
}

// pool makes a pool as ccoctl does, unless it is there.
func (w *world) pool(t *testing.T, id string) {
	t.Helper()
	if !strings.Contains(state(w), "/workloadIdentityPools/"+id+" ") {
		w.Do(t, "POST", "my-project/locations/global/workloadIdentityPools?workloadIdentityPoolId="+id, map[string]any{"description": ccoctlText})
	}
}

// installation is what a cluster of a name wants.
func installation(name string) iam.Wanted {
	owner := federation.OwnedBy(name)
	return iam.Wanted{
		Pool:     &federation.Pool{ID: name, Owner: owner},
		Provider: &federation.Provider{Pool: name, ID: name, IssuerURL: "https://oidc.example.com/" + name, Audiences: []string{"openshift"}, Owner: owner},
		Accounts: &iam.Accounts{Owner: owner, Pool: name, All: true, List: []iam.Account{
			{Name: "openshift-image-registry-gcs", Roles: []string{"roles/storage.admin"}, Subjects: []string{subject, "system:serviceaccount:ns-a:node"}},
			{Name: "openshift-ingress-gcp", Permissions: []string{"dns.changes.create", "dns.changes.get"}, Subjects: []string{"system:serviceaccount:ns-b:ingress"}},
			{Name: "openshift-gcp-ccm", Roles: []string{"roles/compute.viewer"}, Permissions: []string{"compute.zones.list"},
				Subjects: []string{"system:serviceaccount:ns-c:ccm"}},
		}},
	}
}

// apply makes what is wanted, and returns the lines.
func apply(ctx context.Context, c *iam.Client, w iam.Wanted) ([]string, error) {
	p, err := c.Plan(ctx, w)
	if err != nil {
		return nil, err
	}
	return carryOut(ctx, p.Plan)
}

func carryOut(ctx context.Context, p plan.Plan) ([]string, error) {
	var lines []string
	err := p.Apply(ctx, iam.Parallel, func(_ plan.Action, l []string, _ error) { lines = append(lines, l...) })
	return lines, err
}

func mustApply(t *testing.T, w *world, want iam.Wanted) []string {
	t.Helper()
	if want.Accounts != nil {
		check(t, want.Accounts.Check())
	}
	lines, err := apply(t.Context(), w.client(), want)
	check(t, err)
	return lines
}

// preview is the plan for people.
func preview(t *testing.T, w *world, want iam.Wanted) string {
	t.Helper()
	p, err := w.client().Plan(t.Context(), want)
	check(t, err)
	return shown(t, p.Plan)
}

func shown(t *testing.T, p plan.Plan) string {
	t.Helper()
	var b strings.Builder
	check(t, p.Preview().Write(&b))
	return b.String()
}

// finished fails the test unless nothing is left to do, and no write is made to find that out.
func finished(t *testing.T, w *world, want iam.Wanted) {
	t.Helper()
	w.ResetCalls()
	p, err := w.client().Plan(t.Context(), want)
	check(t, err)
	if v := p.Preview(); !v.Empty() {
		t.Errorf("something is left to do:\n%s", shown(t, p.Plan))
	}
	_, err = carryOut(t.Context(), p.Plan)
	check(t, err)
	if n := w.Writes(); n > 0 {
		t.Errorf("%d writes where nothing was to do", n)
	}
}

// state is what a project has, without what is different in every run.
func state(w *world) string {
	s := w.State()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, p := range s.Pools {
		add("pool %s %s disabled=%t %q", p.Name, p.State, p.Disabled, p.Description)
	}
	for _, p := range s.Providers {
		add("provider %s %s disabled=%t %q %v %q %+v", p.Name, p.State, p.Disabled, p.Description, p.Mapping, p.Condition, *p.OIDC)
	}
	for _, a := range s.Accounts {
		if a.Deleted == nil {
			add("account %s disabled=%t %q %q", a.Email, a.Disabled, a.DisplayName, a.Description)
		}
	}
	for _, r := range s.Roles {
		add("role %s %q %q %s %v deleted=%t", r.Name, r.Title, r.Description, r.Stage, r.Permissions, r.Deleted)
	}
	bindings := func(of string, p fakegcp.Policy) {
		for _, b := range p.Bindings {
			members := slices.Sorted(slices.Values(b.Members))
			add("policy of %s: %s %v %v", of, b.Role, members, b.Condition)
		}
	}
	bindings("project", s.Project)
	for email, p := range s.Policies {
		bindings(email, p)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contains fails the test unless text has all parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in\n%s", p, text)
		}
	}
}

func problemOf(err error) rest.Problem {
	if e, is := errors.AsType[*rest.Error](err); is {
		return e.Problem
	}
	return 0
}

// waits keeps what is told.
func waits(told *[]string) func(cloud.Wait) {
	var mu sync.Mutex
	return func(w cloud.Wait) {
		mu.Lock()
		defer mu.Unlock()
		*told = append(*told, w.String())
	}
}
