package plan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/plan"
)

var errRefused = errors.New("AccessDenied")

type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == errRefused }

func action(name string, takes time.Duration, err error) plan.Action {
	return plan.Action{Change: plan.Change{Verb: plan.Create, Thing: "role", Name: name}, Do: func(context.Context) ([]string, error) {
		time.Sleep(takes)
		return []string{name}, err
	}}
}

func names(actions []plan.Action) []string {
	var names []string
	for _, a := range actions {
		names = append(names, a.Name)
	}
	return names
}

func TestApplyDoesStageAfterStage(t *testing.T) {
	second := time.Second
	ok := func(name string, takes time.Duration) plan.Action { return action(name, takes, nil) }
	bad := func(name string) plan.Action { return action(name, second, errRefused) }
	badBy := func(name, why string) plan.Action { return action(name, second, refusal(why)) }
	for _, tt := range []struct {
		name  string
		limit int
		plan  []plan.Stage
		done  string
		takes time.Duration
		err   string
	}{
		{name: "nothing", limit: 4},
		{name: "empty stages", limit: 4, plan: []plan.Stage{{}, {ok("a", second)}, nil}, done: "a", takes: second},
		{name: "side by side", limit: 4, plan: []plan.Stage{{ok("a", 3*second), ok("b", second), ok("c", 2*second)}}, done: "b c a", takes: 3 * second},
		{name: "one at a time", limit: 1, plan: []plan.Stage{{ok("a", 3*second), ok("b", second)}}, done: "a b", takes: 4 * second},
		{name: "a limit that is none", limit: 0, plan: []plan.Stage{{ok("a", second), ok("b", second)}}, done: "a b", takes: 2 * second},
		{name: "a later stage waits for the whole earlier one", limit: 4, plan: []plan.Stage{{ok("a", 3*second), ok("b", second)}, {ok("c", second)}},
			done: "b a c", takes: 4 * second},
		{name: "the rest of a failing stage is done, the next stage is not", limit: 1,
			plan: []plan.Stage{{bad("a"), ok("b", second)}, {ok("c", second)}}, done: "b", takes: 2 * second, err: "create role a: AccessDenied"},
		{name: "every failure is told, in the plan's order", limit: 4,
			plan: []plan.Stage{{bad("a"), ok("b", second), badBy("c", "Throttling")}}, done: "b", takes: second, err: "create role a: AccessDenied\ncreate role c: Throttling"},
		{name: "what fails for one reason is told once", limit: 8,
			plan:  []plan.Stage{{bad("c1-a"), badBy("c1-b", "no right to c1-b"), badBy("c1-c", "no right to c1-c"), bad("c1-d"), badBy("c1-e", "no right to c1-b")}},
			takes: second, err: "create role c1-a and 1 more: AccessDenied\ncreate role c1-b and 1 more: no right to c1-b\ncreate role c1-e: no right to c1-b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var done []plan.Action
				start := time.Now()
				err := plan.Plan{Stages: tt.plan}.Apply(t.Context(), tt.limit, func(a plan.Action, _ []string, err error) {
					if err == nil {
						done = append(done, a)
					}
				})
				if got := strings.Join(names(done), " "); got != tt.done {
					t.Errorf("done: %q, want %q", got, tt.done)
				}
				if takes := time.Since(start); takes != tt.takes {
					t.Errorf("took %v, want %v", takes, tt.takes)
				}
				if tt.err == "" && err != nil || tt.err != "" && (!errors.Is(err, errRefused) || err.Error() != tt.err) {
					t.Errorf("error %q, want %q", err, tt.err)
				}
			})
		})
	}
}

// Whatever the plan and the limit: never more at once than allowed, no action of a stage before the end of the one
// before it, done for exactly those that succeeded, one at a time.
func TestApplyKeepsItsLimits(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkLimits(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func checkLimits(t *testing.T, r *rand.Rand) {
	limit := 1 + r.IntN(5)
	running := make(chan struct{}, limit) // one more than that blocks for ever, and synctest tells
	telling := make(chan struct{}, 1)
	var p plan.Plan
	failing, want, got := -1, 0, 0
	for stage := range 1 + r.IntN(4) {
		var s plan.Stage
		for range r.IntN(8) {
			takes, fails := time.Duration(r.IntN(5))*time.Second, r.IntN(15) == 0
			if failing < 0 || failing == stage {
				if fails {
					failing = stage
				} else {
					want++
				}
			}
			s = append(s, plan.Action{Change: plan.Change{Name: fmt.Sprint(stage)}, Do: func(context.Context) ([]string, error) {
				select {
				case running <- struct{}{}:
				default:
					t.Errorf("more than %d at once", limit)
				}
				time.Sleep(takes)
				select {
				case <-running:
				default:
				}
				if fails {
					return nil, errRefused
				}
				return nil, nil
			}})
		}
		p.Stages = append(p.Stages, s)
	}
	last := "0"
	err := p.Apply(t.Context(), limit, func(a plan.Action, _ []string, err error) {
		select {
		case telling <- struct{}{}:
		default:
			t.Error("two at once were told as done")
		}
		if a.Name < last {
			t.Errorf("an action of stage %s after one of stage %s", a.Name, last)
		}
		last = a.Name
		if err == nil {
			got++
		}
		runtime.Gosched() // a chance for the others; sleeping is none, as synctest does not count who waits for a mutex
		<-telling
	})
	if got != want || (err != nil) != (failing >= 0) {
		t.Errorf("%d done, want %d; error %v", got, want, err)
	}
}

func TestApplyBeginsNothingAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted")
		var begun []string
		act := func(name string, do func(context.Context) error) plan.Action {
			return plan.Action{Change: plan.Change{Verb: plan.Delete, Thing: "role", Name: name}, Do: func(ctx context.Context) ([]string, error) {
				begun = append(begun, name)
				return nil, do(ctx)
			}}
		}
		p := plan.Plan{Stages: []plan.Stage{
			{
				act("a", func(context.Context) error { cancel(interrupted); return nil }),
				act("b", func(context.Context) error { return nil }),
				act("c", func(context.Context) error { return nil }),
			},
			{act("d", func(context.Context) error { return nil })},
		}}
		var done []plan.Action
		err := p.Apply(ctx, 1, func(a plan.Action, _ []string, _ error) { done = append(done, a) })
		if !errors.Is(err, interrupted) || err.Error() != "2 of 3 actions were not begun: interrupted" {
			t.Errorf("error %v", err)
		}
		if !slices.Equal(begun, []string{"a"}) || !slices.Equal(names(done), begun) {
			t.Errorf("begun %v, done %v: a was, and what was done counts as done", begun, names(done))
		}
	})
}

func TestWriteShowsTheWholePlan(t *testing.T) {
	create := plan.Action{Change: plan.Change{Verb: plan.Create, Thing: "IAM OIDC identity provider", Name: "arn:aws:iam::111122223333:oidc-provider/oidc.example.com/a"}}
	update := plan.Action{Change: plan.Change{Verb: plan.Update, Thing: "IAM role", Name: "a-ns-secret",
		Diff: []string{"+ trust policy: statement for oidc.example.com/a", "- tag team=\x1b[2Jred\nteam"}}}
	remove := plan.Action{Change: plan.Change{Verb: plan.Delete, Thing: "IAM role", Name: "a-ns-old"}}
	for _, tt := range []struct {
		name  string
		plan  plan.Plan
		empty bool
		want  string
	}{
		{name: "nothing", empty: true, want: "nothing to change\n"},
		{name: "nothing but notes", plan: plan.Plan{Stages: []plan.Stage{{}}, Notes: []string{"role x is not ours"}}, empty: true,
			want: "nothing to change\nnote: role x is not ours\n"},
		{name: "nothing to do about what is beyond", empty: true, want: "? role x has more\nnote: n\n",
			plan: plan.Plan{Notes: []string{"n"}, Extra: []string{"role x has more"}}},
		{
			name: "stages in order, and what a terminal would obey is made harmless",
			plan: plan.Plan{Stages: []plan.Stage{{create}}, Notes: []string{"n1"}}.
				Then(plan.Plan{Stages: []plan.Stage{{update, remove}}, Notes: []string{"n2"}}),
			want: `+ create IAM OIDC identity provider arn:aws:iam::111122223333:oidc-provider/oidc.example.com/a
~ update IAM role a-ns-secret
    + trust policy: statement for oidc.example.com/a
    - tag team=?[2Jred?team
- delete IAM role a-ns-old
note: n1
note: n2
`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := tt.plan.Preview().Write(&b); err != nil || b.String() != tt.want {
				t.Errorf("%v, got\n%s\nwant\n%s", err, b.String(), tt.want)
			}
			if tt.plan.Empty() != tt.empty {
				t.Errorf("Empty() = %t", !tt.empty)
			}
		})
	}
	r, w := io.Pipe()
	_ = r.Close()
	if err := (plan.Preview{}).Write(w); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failing writer: %v", err)
	}
}

// What took effect is reported, also of an action that failed half-way.
func TestApplyReportsWhatTookEffect(t *testing.T) {
	half := plan.Action{Change: plan.Change{Verb: plan.Create, Thing: "role", Name: "a"}, Do: func(context.Context) ([]string, error) {
		return []string{"role a created"}, errRefused
	}}
	whole := action("b", 0, nil)
	var heard []string
	err := plan.Plan{Stages: []plan.Stage{{half, whole}}}.Apply(t.Context(), 1, func(a plan.Action, lines []string, err error) {
		heard = append(heard, fmt.Sprint(a.Name, lines, err != nil))
	})
	if want := []string{"a[role a created] true", "b[b] false"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	if !errors.Is(err, errRefused) {
		t.Errorf("error %v", err)
	}
}
