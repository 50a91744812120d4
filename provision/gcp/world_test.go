package gcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakegcp"
)

const (
	issuerURL = "https://oidc.example.com/demo"
	subject   = "system:serviceaccount:ns-a:operator"
)

// world is a project in Google Cloud, and a way to it that time does not pass on.
type world struct {
	*fakegcp.Server
	dead atomic.Bool // nothing gets through any more
}

// inWorld runs f with a project, in time that passes only when everybody waits.
func inWorld(t *testing.T, o fakegcp.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &world{Server: fakegcp.New(o)}) })
}

// RoundTrip answers without a network.
func (w *world) RoundTrip(r *http.Request) (res *http.Response, err error) {
	if w.dead.Load() {
		return nil, errors.New("dead")
	}
	defer func() {
		v := recover()
		cut, is := v.(error)
		switch {
		case is && errors.Is(cut, http.ErrAbortHandler):
			res, err = nil, io.ErrUnexpectedEOF
		case v != nil:
			panic(v)
		case w.dead.Load():
			res, err = nil, errors.New("died")
		}
	}()
	r = r.Clone(r.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	r.Host = r.URL.Host
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec.Result(), nil
}

func (w *world) client() *gcp.Client {
	return gcp.OpenWith(fakegcp.AccessToken, gcp.Access{Project: "my-project", Transport: w})
}

// do makes a call as somebody else with the same rights.
func (w *world) do(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	host := "iam"
	if !strings.Contains(path, "/") || strings.HasPrefix(path, "my-project:") {
		host = "cloudresourcemanager"
	}
	b, err := json.Marshal(body)
	check(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+".googleapis.com/v1/projects/"+path, strings.NewReader(string(b)))
	check(t, err)
	r.Header.Set("Authorization", "Bearer "+fakegcp.AccessToken)
	res, err := (&http.Client{Transport: w}).Do(r)
	check(t, err)
	data, err := io.ReadAll(res.Body)
	check(t, err)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s: %s", method, path, res.Status, data)
	}
	out := map[string]any{}
	check(t, json.Unmarshal(data, &out))
	if name, _ := out["name"].(string); strings.Contains(name, "/operations/") && out["done"] != true {
		time.Sleep(time.Second)
		return w.do(t, "GET", strings.TrimPrefix(name, "projects/"), nil)
	}
	return out
}

// project changes the project's policy as somebody else does.
func (w *world) project(t *testing.T, change func(p *fakegcp.Policy)) {
	t.Helper()
	w.policy(t, "my-project", change)
}

// policy changes a policy as somebody else does.
func (w *world) policy(t *testing.T, of string, change func(p *fakegcp.Policy)) {
	t.Helper()
	get := of + ":getIamPolicy"
	body := any(map[string]any{"options": map[string]int{"requestedPolicyVersion": 3}})
	if of != "my-project" {
		get, body = get+"?options.requestedPolicyVersion=3", struct{}{}
	}
	b, err := json.Marshal(w.do(t, "POST", get, body))
	check(t, err)
	var p fakegcp.Policy
	check(t, json.Unmarshal(b, &p))
	change(&p)
	p.Version = 3
	w.do(t, "POST", of+":setIamPolicy", map[string]any{"policy": p})
}

// installation is what a cluster of a name wants.
func installation(name string) gcp.Wanted {
	owner := gcp.OwnedBy(name)
	return gcp.Wanted{
		Pool:     &gcp.Pool{ID: name, Owner: owner},
		Provider: &gcp.Provider{Pool: name, ID: name, IssuerURL: "https://oidc.example.com/" + name, Audiences: []string{"openshift"}, Owner: owner},
		Accounts: &gcp.Accounts{Owner: owner, Pool: name, All: true, List: []gcp.Account{
			{Request: "openshift-image-registry-gcs", Roles: []string{"roles/storage.admin"}, Subjects: []string{subject, "system:serviceaccount:ns-a:node"}},
			{Request: "openshift-ingress-gcp", Permissions: []string{"dns.changes.create", "dns.changes.get"}, Subjects: []string{"system:serviceaccount:ns-b:ingress"}},
			{Request: "openshift-gcp-ccm", Roles: []string{"roles/compute.viewer"}, Permissions: []string{"compute.zones.list"},
				Subjects: []string{"system:serviceaccount:ns-c:ccm"}},
		}},
	}
}

// apply makes what is wanted, and returns the lines.
func apply(ctx context.Context, c *gcp.Client, w gcp.Wanted) ([]string, error) {
	p, err := c.Plan(ctx, w)
	if err != nil {
		return nil, err
	}
	return carryOut(ctx, p.Plan)
}

func carryOut(ctx context.Context, p plan.Plan) ([]string, error) {
	var lines []string
	err := p.Apply(ctx, gcp.Parallel, func(_ plan.Action, l []string, _ error) { lines = append(lines, l...) })
	return lines, err
}

func mustApply(t *testing.T, w *world, want gcp.Wanted) []string {
	t.Helper()
	check(t, want.Check())
	lines, err := apply(t.Context(), w.client(), want)
	check(t, err)
	return lines
}

// preview is the plan for people.
func preview(t *testing.T, w *world, want gcp.Wanted) string {
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
func finished(t *testing.T, w *world, want gcp.Wanted) {
	t.Helper()
	w.ResetCalls()
	p, err := w.client().Plan(t.Context(), want)
	check(t, err)
	if v := p.Preview(); !v.Empty() {
		t.Errorf("something is left to do:\n%s", shown(t, p.Plan))
	}
	_, err = carryOut(t.Context(), p.Plan)
	check(t, err)
	if n := writes(w); n > 0 {
		t.Errorf("%d writes where nothing was to do", n)
	}
}

func writes(w *world) int {
	n := 0
	for _, c := range w.Calls() {
		if c.Write {
			n++
		}
	}
	return n
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

func problemOf(err error) gcp.Problem {
	if e, is := errors.AsType[*gcp.Error](err); is {
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
