package awsiam_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
)

// job is a piece of work on an account, from what is there at first to what is wanted. It makes every kind of write.
type job struct {
	name  string
	setUp func(t *testing.T, w *world)
	run   func(ctx context.Context, w *world) error
}

const readOnly = "arn:aws:iam::aws:policy/ReadOnlyAccess"

// messy is a cluster that has one of everything.
func (w *world) messy() desired {
	d := w.cluster(2)
	d.roles[0].ManagedPolicies = []string{readOnly}
	d.provider.Thumbprints = []string{strings.Repeat("A", 40)}
	d.provider.Prune, d.roles[0].Prune = true, true
	return d
}

func jobs(t *testing.T) []job {
	planned := func(ctx context.Context, w *world, p planner) error {
		plan, err := p(ctx)
		if err != nil {
			return err
		}
		return plan.Apply(ctx, 1, ignore) // one at a time, so that a run can be repeated call for call
	}
	made := func(t *testing.T, w *world) { w.mustRun(t, w.messy()) }
	return []job{
		{"create", func(*testing.T, *world) {}, func(ctx context.Context, w *world) error {
			return planned(ctx, w, func(ctx context.Context) (plan.Plan, error) { return w.plan(ctx, w.messy()) })
		}},
		{"repair", func(t *testing.T, w *world) { made(t, w); w.disarrange(t, w.messy()) }, func(ctx context.Context, w *world) error {
			return planned(ctx, w, func(ctx context.Context) (plan.Plan, error) { return w.plan(ctx, w.messy()) })
		}},
		{"move", made, func(ctx context.Context, w *world) error {
			d := w.messy()
			second := d.provider
			second.URL = newIssuer
			to := awsiam.Trust{ProviderARN: w.account.ProviderARN(newIssuer), Issuer: newIssuer, Audiences: d.trust.Audiences}
			m := awsiam.Move{Name: "c1", From: d.trust, To: to}
			have, err := w.hand.GetOpenIDConnectProvider(ctx,
				&iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(m.From.ProviderARN)})
			if err == nil && have != nil {
				err = planned(ctx, w, func(ctx context.Context) (plan.Plan, error) { return w.client.PlanProvider(ctx, w.account, second) })
				if err == nil {
					err = planned(ctx, w, func(ctx context.Context) (plan.Plan, error) { return w.client.PlanMove(ctx, m) })
				}
			} else if _, gone := errors.AsType[*types.NoSuchEntityException](err); gone {
				err = nil
			}
			if err != nil {
				return err
			}
			return planned(ctx, w, func(ctx context.Context) (plan.Plan, error) { return w.client.PlanFinish(ctx, m) })
		}},
		{"delete", made, func(ctx context.Context, w *world) error {
			return planned(ctx, w, func(ctx context.Context) (plan.Plan, error) {
				return w.client.PlanDelete(ctx, w.account, awsiam.Deletion{Name: "c1"})
			})
		}},
	}
}

// disarrange leaves nothing as it was wanted.
func (w *world) disarrange(t *testing.T, d desired) {
	t.Helper()
	ctx, arn := t.Context(), aws.String(d.trust.ProviderARN)
	role, other := aws.String(d.roles[0].Name), aws.String(d.roles[1].Name)
	for _, err := range []error{
		second(w.hand.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: []types.Tag{{Key: aws.String("team"), Value: aws.String("b")}}})),
		second(w.hand.DeleteRolePermissionsBoundary(ctx, &iam.DeleteRolePermissionsBoundaryInput{RoleName: role})),
		second(w.hand.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: aws.String(readOnly)})),
		second(w.hand.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: role, PolicyName: role,
			PolicyDocument: aws.String(string(policy("a:B", "ec2:RunInstances")))})),
		second(w.hand.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: role, PolicyDocument: aws.String(
			`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":"` + *arn + `"},"Action":"sts:AssumeRoleWithWebIdentity",` +
				`"Condition":{"StringLike":{"oidc.example.com/c1:sub":"*"}}}]}`)})),
		second(w.hand.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: other, PolicyName: other})),
		second(w.hand.PutRolePermissionsBoundary(ctx, &iam.PutRolePermissionsBoundaryInput{RoleName: other,
			PermissionsBoundary: aws.String("arn:aws:iam::aws:policy/x")})),
		second(w.hand.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn,
			ClientID: aws.String("more")})),
		second(w.hand.RemoveClientIDFromOpenIDConnectProvider(ctx,
			&iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String("openshift")})),
		second(w.hand.UpdateOpenIDConnectProviderThumbprint(ctx,
			&iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: arn, ThumbprintList: []string{strings.Repeat("b", 40)}})),
		second(w.hand.UntagOpenIDConnectProvider(ctx, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn,
			TagKeys: []string{"team"}})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// prepared is a world at the beginning of a job.
func (j job) prepared(t *testing.T, o fakeaws.Options) *world {
	t.Helper()
	w := newWorld(t, o)
	j.setUp(t, w)
	w.ResetCalls()
	return w
}

// done runs a job without any trouble: what it comes to, and how many calls it takes.
func (j job) done(t *testing.T) (picture string, calls int) {
	t.Helper()
	w := j.prepared(t, fakeaws.Options{})
	if err := j.run(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w.picture(), len(w.Calls())
}

// Killed after any call, with or without having learnt its reply, the next run completes the work: nothing is left
// over, nothing is doubled.
func TestARunThatEndsAnywhereIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	for _, j := range jobs(t) {
		run(t, j.name, func(t *testing.T) {
			want, calls := j.done(t)
			if calls < 5 {
				t.Fatalf("%d calls are not enough work", calls)
			}
			for n := 1; n <= calls; n++ {
				w := j.prepared(t, fakeaws.Options{})
				ctx, kill := context.WithCancel(t.Context())
				w.OnCall(func(i int, _ fakeaws.Call) {
					if i >= n {
						kill()
					}
				})
				err := j.run(ctx, w)
				kill()
				if err == nil && n < calls {
					t.Errorf("killed after call %d of %d, it says that it is done", n, calls)
				}
				w.OnCall(nil)
				if j.name == "move" {
					w.trustsAnIssuer(t)
				}
				if err := j.run(t.Context(), w); err != nil {
					t.Fatalf("after a death at call %d: %v", n, err)
				}
				if got := w.picture(); got != want {
					t.Errorf("after a death at call %d\n%s\nwant\n%s", n, got, want)
				}
			}
		})
	}
}

// trustsAnIssuer fails if a role trusts no provider that is there: whichever issuer the cluster signs as, its pods would lose the role.
func (w *world) trustsAnIssuer(t *testing.T) {
	t.Helper()
	st := w.State()
	for _, r := range st.Roles {
		if !slices.ContainsFunc(st.Providers, func(p fakeaws.Provider) bool { return strings.Contains(r.Trust, p.ARN+`"`) }) {
			t.Errorf("role %s trusts none of the %d providers: %s", r.Name, len(st.Providers), r.Trust)
		}
	}
}

// faultOnce lets every call that is like no earlier one go wrong.
func faultOnce(fault fakeaws.Fault, which func(fakeaws.Call) bool) func(fakeaws.Call) fakeaws.Fault {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(c fakeaws.Call) fakeaws.Fault {
		mu.Lock()
		defer mu.Unlock()
		key := c.Action + c.Params["RoleName"] + c.Params["ClientID"] + c.Params["PolicyName"]
		if seen[key] || !which(c) {
			return fakeaws.Fault{}
		}
		seen[key] = true
		return fault
	}
}

func TestTroubleOnTheWayDoesNotShow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type trouble func() func(fakeaws.Call) fakeaws.Fault // anew for every account
		once := func(fault fakeaws.Fault, which func(fakeaws.Call) bool) trouble {
			return func() func(fakeaws.Call) fakeaws.Fault { return faultOnce(fault, which) }
		}
		writes := func(c fakeaws.Call) bool { return c.Write }
		all := func(fakeaws.Call) bool { return true }
		var running sync.WaitGroup // all side by side, because the SDK's pauses are long
		for _, tt := range []struct {
			name    string
			options fakeaws.Options
			fault   trouble
		}{
			{"the reply to every write is lost", fakeaws.Options{}, once(fakeaws.Fault{Lost: true}, writes)},
			{"the reply to every write is lost, and shows late", fakeaws.Options{ConsistencyDelay: 300 * time.Millisecond},
				once(fakeaws.Fault{Lost: true}, writes)},
			{"every call is refused once", fakeaws.Options{}, once(fakeaws.Unavailable(), all)},
			{"every write meets another", fakeaws.Options{}, once(fakeaws.Fail(http.StatusConflict, "ConcurrentModification", "busy"), writes)},
			{"IAM shows what is written late", fakeaws.Options{ConsistencyDelay: 700 * time.Millisecond}, once(fakeaws.Fault{}, all)},
		} {
			for _, j := range jobs(t) {
				want, _ := j.done(t)
				o, jump := tt.options, new(atomic.Int64)
				o.Now = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
				w := j.prepared(t, o)
				jump.Store(int64(o.ConsistencyDelay)) // the job begins once what was set up shows
				w.Fault(tt.fault())
				running.Go(func() {
					if err := j.run(t.Context(), w); err != nil {
						t.Errorf("%s, %s: %v", tt.name, j.name, err)
					} else if got := w.picture(); got != want {
						t.Errorf("%s, %s: got\n%s\nwant\n%s", tt.name, j.name, got, want)
					}
				})
			}
		}
		running.Wait()
	})
}

// A role that appears between the plan and its execution is somebody else's unless its tags say otherwise.
func TestARoleThatAppearsMeanwhileIsNotTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeaws.Options{})
		d := w.cluster(1)
		p, err := w.plan(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		const theirs = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},` +
			`"Action":"sts:AssumeRole"}]}`
		w.Fault(func(c fakeaws.Call) fakeaws.Fault {
			if c.Action == "CreateRole" && c.Params["Description"] != "theirs" {
				w.once.Do(func() {
					_, err = w.hand.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String(d.roles[0].Name),
						Description: aws.String("theirs"), AssumeRolePolicyDocument: aws.String(theirs)})
				})
			}
			return fakeaws.Fault{}
		})
		applied := p.Apply(t.Context(), 1, ignore)
		if err != nil || applied == nil || !strings.Contains(applied.Error(), "something else made it") {
			t.Errorf("got %v, %v", applied, err)
		}
		if got := w.role(t, d.roles[0].Name); got.Description != "theirs" || len(got.Inline) > 0 || len(got.Tags) > 0 {
			t.Errorf("the role became %+v", got)
		}
	})
}

// permissions returns the IAM actions that the README's policy allows.
func permissions(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("../aws/README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(readme), "```json\n")
	text, _, _ := strings.Cut(rest, "```")
	var policy struct{ Statement []struct{ Action []string } }
	must(t, json.Unmarshal([]byte(text), &policy))
	if len(policy.Statement) != 1 || !slices.IsSorted(policy.Statement[0].Action) {
		t.Fatalf("the README's policy is %+v", policy)
	}
	return policy.Statement[0].Action
}

// The list in the README allows what the jobs do, and nothing in it is for nothing.
func TestPermissionsAreExactlyWhatIsCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		allowed := permissions(t)
		least := fakeaws.Options{Policy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["` +
			strings.Join(allowed, `","`) + `"],"Resource":"*"}]}`}
		called := map[string]bool{}
		for _, j := range jobs(t) {
			o := least
			if j.name == "repair" {
				o = fakeaws.Options{} // the disorder is made with more permissions than these
			}
			w := j.prepared(t, o)
			if err := j.run(t.Context(), w); err != nil {
				t.Fatalf("%s: %v", j.name, err)
			}
			if j.name == "create" {
				for _, at := range []time.Time{time.Now(), {}} {
					if _, err := w.client.SetMovedAt(t.Context(), w.account.ProviderARN(issuer), at); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, c := range w.Calls() {
				called["iam:"+c.Action] = true
			}
		}
		for _, a := range allowed {
			if !called[a] {
				t.Errorf("%s is never called", a)
			}
		}
		for a := range called {
			if !slices.Contains(allowed, a) {
				t.Errorf("%s is called and not listed", a)
			}
		}
	})
}
