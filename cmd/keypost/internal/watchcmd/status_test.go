package watchcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/issuer/verify/watch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/kubestore"
)

// What is written is not written again, what was changed meanwhile is, and one broken object keeps nobody else's status back;
// without rights or an answer ten thousand objects are not all tried.
func TestWriteStatuses(t *testing.T) {
	var all []watch.Seen
	for _, n := range []keystore.Name{"a", "b", "c"} {
		all = append(all, watch.Seen{Stored: watch.Stored{KeySet: n, Generation: 1}, Verdict: watch.Everywhere})
	}
	answered := fmt.Errorf("x: %w", &kubeapi.StatusError{Code: 422})
	for what, tc := range map[string]struct {
		done      bool
		err       error
		first, on []keystore.Name // that are tried at first, and the next time
		fails     bool
	}{
		"written":           {true, nil, []keystore.Name{"a", "b", "c"}, nil, false},
		"changed meanwhile": {false, nil, []keystore.Name{"a", "b", "c"}, []keystore.Name{"a"}, false},
		"refused as it is":  {false, answered, []keystore.Name{"a", "b", "c"}, []keystore.Name{"a"}, true},
		"no right":          {false, fmt.Errorf("%w: %w", keystore.ErrReadOnly, answered), []keystore.Name{"a"}, []keystore.Name{"a"}, true},
		"nobody answers":    {false, errors.New("connection refused"), []keystore.Name{"a"}, []keystore.Name{"a"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			var tried []keystore.Name
			s := &statuses{written: map[keystore.Name]written{}, set: func(_ context.Context, n keystore.Name, to kubestore.Status, _ time.Time) (bool, error) {
				tried = append(tried, n)
				if n == "a" {
					return tc.done, tc.err
				}
				return true, nil
			}}
			if err := s.write(t.Context(), all, time.Now()); (err != nil) != tc.fails || !slices.Equal(tried, tc.first) {
				t.Errorf("at first %v were tried: %v", tried, err)
			}
			tried = nil
			_ = s.write(t.Context(), all[:1], time.Now())
			if !slices.Equal(tried, tc.on) {
				t.Errorf("then %v were tried", tried)
			}
		})
	}
}

// What was written is read again, so that neither an object that was made anew nor a status that somebody else has written stays as it
// is; never many at once, and none is left out for good.
func TestStatusesAreReadAgain(t *testing.T) {
	var all []watch.Seen
	for i := range 3 * mostAgain {
		all = append(all, watch.Seen{Stored: watch.Stored{KeySet: keystore.Name(fmt.Sprintf("n%02d", i)), Generation: 1}, Verdict: watch.Everywhere})
	}
	tried := map[keystore.Name]int{}
	s := &statuses{written: map[keystore.Name]written{}, set: func(_ context.Context, n keystore.Name, _ kubestore.Status, _ time.Time) (bool, error) {
		tried[n]++
		return true, nil
	}}
	now := time.Unix(1e9, 0)
	for _, step := range []struct {
		after    time.Duration
		sum, min int // tries of all, and of the one that was tried least
	}{
		{0, len(all), 1}, {statusAgain - time.Second, len(all), 1}, {time.Second, len(all) + mostAgain, 1}, {statusEvery, len(all) + 2*mostAgain, 1},
		{statusEvery, 2 * len(all), 2}, {statusEvery, 2 * len(all), 2},
	} {
		now = now.Add(step.after)
		if err := s.write(t.Context(), all, now); err != nil {
			t.Fatal(err)
		}
		sum, least := 0, len(all)
		for _, n := range tried {
			sum, least = sum+n, min(least, n)
		}
		if sum != step.sum || least != step.min {
			t.Errorf("after %v: %d tries, %d of the least; want %d and %d", step.after, sum, least, step.sum, step.min)
		}
	}
}

// Ready is what nobody has to wait for any more; a status never says True of what was not seen.
func TestStatusOf(t *testing.T) {
	for verdict, want := range map[watch.Verdict][2]string{
		watch.Everywhere: {"True", "True"}, watch.Ended: {"False", "True"}, watch.Rogue: {"False", "False"},
		watch.Different: {"False", "False"}, watch.NotYet: {"False", "False"}, watch.NotSeen: {"Unknown", "Unknown"}, 0: {"Unknown", "Unknown"},
	} {
		s := statusOf(watch.Seen{Verdict: verdict})
		if got := [2]string{s.Conditions[0].Status, s.Conditions[1].Status}; got != want {
			t.Errorf("verdict %d: Published and Ready are %v, want %v", verdict, got, want)
		}
	}
}

// The health check that docs/gitops gives to Argo CD is run here by the interpreter that Argo CD has, on every status that is written:
// no key set is healthy that was not seen as it is stored, and only what is wrong is degraded.
func TestHealthForArgoCD(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/gitops/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(page), "resource.customizations.health.keypost.dev_KeySet: |\n")
	script, _, closed := strings.Cut(script, "```")
	if !found || !closed {
		t.Fatal("docs/gitops/README.md has no health check")
	}
	health := func(generation, observed int, conditions []kubestore.Condition) string {
		l := lua.NewState()
		defer l.Close()
		table := func(members map[string]lua.LValue) *lua.LTable {
			v := l.NewTable()
			for name, member := range members {
				v.RawSetString(name, member)
			}
			return v
		}
		list := l.NewTable()
		for _, c := range conditions {
			list.Append(table(map[string]lua.LValue{"type": lua.LString(c.Type), "status": lua.LString(c.Status), "reason": lua.LString(c.Reason), "message": lua.LString(c.Message)}))
		}
		o := map[string]lua.LValue{"metadata": table(map[string]lua.LValue{"generation": lua.LNumber(generation)})}
		if conditions != nil {
			o["status"] = table(map[string]lua.LValue{"observedGeneration": lua.LNumber(observed), "conditions": list})
		}
		l.SetGlobal("obj", table(o))
		if err := l.DoString(script); err != nil {
			t.Fatal(err)
		}
		answer, ok := l.Get(-1).(*lua.LTable)
		if !ok || answer.RawGetString("message").String() == "" {
			t.Fatalf("the check returns %v", l.Get(-1))
		}
		return answer.RawGetString("status").String()
	}
	if got := health(7, 0, nil); got != "Progressing" {
		t.Errorf("without a status: %s", got)
	}
	for verdict, want := range map[watch.Verdict]string{
		watch.Everywhere: "Healthy", watch.Ended: "Healthy", watch.Rogue: "Degraded", watch.Different: "Degraded", watch.NotYet: "Progressing", watch.NotSeen: "Progressing",
	} {
		conditions := statusOf(watch.Seen{Verdict: verdict}).Conditions
		if got := health(7, 7, conditions); got != want {
			t.Errorf("verdict %d: %s; want %s", verdict, got, want)
		}
		if got := health(8, 7, conditions); got != "Progressing" {
			t.Errorf("verdict %d about the version before: %s", verdict, got)
		}
	}
}
