package awsiam_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
)

const (
	issuer    = "https://oidc.example.com/c1"
	oldIssuer = "https://c1-oidc.s3.us-east-1.amazonaws.com"
	boundary  = "arn:aws:iam::123456789012:policy/boundary"
)

// world is an account, and a client for it.
type world struct {
	*fakeaws.Server
	client  *awsiam.Client
	account awsiam.Account
	hand    *iam.Client // what other tools, and people, call with
	once    sync.Once
}

type (
	planner func(context.Context) (plan.Plan, error)
)

func ignore(plan.Action, []string, error) {}

func newWorld(t *testing.T, o fakeaws.Options) *world {
	t.Helper()
	return worldOf(t, fakeaws.StartMemory(t, o))
}

func worldOf(t *testing.T, s *fakeaws.Server) *world {
	t.Helper()
	c, err := awsiam.Open(t.Context(), awsiam.Options{Consistency: 20 * time.Second, Config: s.Config()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Account(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadDefaultConfig(t.Context(), s.Config()...)
	if err != nil {
		t.Fatal(err)
	}
	s.ResetCalls()
	return &world{Server: s, client: c, account: a, hand: iam.NewFromConfig(cfg)}
}

// run is t.Run for what happens in time that passes only when everybody waits.
func run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// desired is a cluster as it should be.
type desired struct {
	provider awsiam.Provider
	trust    awsiam.Trust
	roles    []awsiam.Role
}

func (w *world) cluster(n int) desired {
	d := desired{
		provider: awsiam.Provider{URL: issuer, ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Owner: awsiam.OwnedBy("c1"),
			Tags: map[string]string{"team": "a"}},
		trust: awsiam.Trust{ProviderARN: w.account.ProviderARN(issuer), Issuer: issuer, Audiences: []string{"openshift", "sts.amazonaws.com"}},
	}
	for i := range n {
		ns, secret := fmt.Sprintf("openshift-%d", i), "cloud-credentials"
		d.roles = append(d.roles, awsiam.Role{
			Name: ccoctl.RoleName("c1", ns, secret), For: ns + "/" + secret, Description: "OpenShift role for " + ns + "/" + secret,
			Subjects: []string{"system:serviceaccount:" + ns + ":operator", "system:serviceaccount:" + ns + ":node"},
			Policy:   policy("ec2:DescribeInstances", "ec2:RunInstances"),
			Boundary: boundary, Owner: awsiam.OwnedBy("c1"), Tags: map[string]string{"team": "a"},
		})
	}
	return d
}

func policy(actions ...string) []byte {
	return fmt.Appendf(nil, `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["%s"],"Resource":"*"}]}`,
		strings.Join(actions, `","`))
}

// plan checks and plans all of d.
func (w *world) plan(ctx context.Context, d desired) (plan.Plan, error) {
	if err := awsiam.Check(d.provider, d.trust, d.roles); err != nil {
		return plan.Plan{}, err
	}
	p, err := w.client.PlanProvider(ctx, w.account, d.provider)
	if err != nil {
		return p, err
	}
	q, err := w.client.PlanRoles(ctx, d.trust, d.roles)
	return p.Then(q), err
}

// run plans and applies.
func (w *world) run(ctx context.Context, d desired) error {
	p, err := w.plan(ctx, d)
	if err != nil {
		return err
	}
	return p.Apply(ctx, awsiam.Parallel, ignore)
}

func (w *world) mustRun(t testing.TB, d desired) {
	t.Helper()
	if err := w.run(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// apply does what was planned.
func apply(t testing.TB, p plan.Plan, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context(), awsiam.Parallel, ignore); err != nil {
		t.Fatal(err)
	}
}

func (w *world) mustPlanNothing(t testing.TB, d desired) {
	t.Helper()
	p, err := w.plan(t.Context(), d)
	if err != nil || !p.Empty() {
		t.Fatalf("there is still something to do: %v\n%s", err, shown(p))
	}
}

func shown(p plan.Plan) string {
	var b strings.Builder
	_ = p.Preview().Write(&b) // into memory
	return b.String()
}

// picture is what there is, without what differs from one making to another.
func (w *world) picture() string {
	st := w.State()
	var lines []string
	for _, p := range st.Providers {
		p.Created = time.Time{}
		slices.Sort(p.ClientIDs)
		lines = append(lines, fmt.Sprintf("%+v", p))
	}
	for _, r := range st.Roles {
		r.Created, r.ID = time.Time{}, ""
		lines = append(lines, fmt.Sprintf("%+v", r))
	}
	return strings.Join(lines, "\n")
}

func (w *world) role(t testing.TB, name string) fakeaws.Role {
	t.Helper()
	for _, r := range w.State().Roles {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("there is no role %s", name)
	return fakeaws.Role{}
}

// is reports whether an error has a problem.
func is(err error, p awsiam.Problem) bool {
	e, ok := errors.AsType[*awsiam.Error](err)
	return ok && e.Problem == p
}

func counts(calls []fakeaws.Call) map[string]int {
	out := map[string]int{}
	for _, c := range calls {
		out[c.Action]++
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
