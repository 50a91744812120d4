package cloud_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

var errBusy = errors.New("busy")

// service is a cloud in which things are made by their names, and in which what is made shows late.
type service struct {
	delay  time.Duration
	made   map[string]time.Time
	calls  []string
	answer func(n int, name string) (cloud.Answer, error) // of the n-th call; nil accepts all
}

func (s *service) step(name string) cloud.Step {
	return cloud.Step{Key: name, Diff: []string{"+ " + name}, Line: name + " made", Call: func(context.Context) (cloud.Answer, error) {
		s.calls = append(s.calls, name)
		answer, err := cloud.Accepted, error(nil)
		_, there := s.made[name]
		switch {
		case s.answer != nil:
			answer, err = s.answer(len(s.calls), name)
		case there:
			answer = cloud.Exists
		}
		if answer != cloud.NotYet && answer != cloud.Refused && !there {
			s.made[name] = time.Now()
		}
		return answer, err
	}}
}

// remaining returns the steps for the things that do not show.
func (s *service) remaining(names ...string) cloud.Remaining {
	return func(context.Context) ([]cloud.Step, error) {
		var steps []cloud.Step
		for _, n := range names {
			if at, made := s.made[n]; !made || time.Since(at) < s.delay {
				steps = append(steps, s.step(n))
			}
		}
		return steps, nil
	}
}

func answers(n int, a cloud.Answer, err error) func(int, string) (cloud.Answer, error) {
	return func(call int, _ string) (cloud.Answer, error) {
		if call <= n {
			return a, err
		}
		return cloud.Accepted, nil
	}
}

func TestConverge(t *testing.T) {
	for _, tt := range []struct {
		name    string
		service service
		there   string // made before
		calls   string
		lines   string
		err     string
	}{
		{name: "nothing to do", there: "a b"},
		{name: "all of it, in order", calls: "a b", lines: "a made, b made"},
		{name: "the rest of it", there: "a", calls: "b", lines: "b made"},
		{name: "what shows late is not made twice", service: service{delay: time.Minute}, calls: "a b", lines: "a made, b made"},
		{name: "what never shows", service: service{delay: time.Hour}, calls: "a b", lines: "a made, b made",
			err: "IAM accepted the change and does not show it after 2m0s, or somebody else changes it too: run it again"},
		{name: "what is busy is tried again", service: service{answer: answers(2, cloud.NotYet, errBusy)}, calls: "a a a b", lines: "a made, b made"},
		{name: "what stays busy", service: service{answer: answers(1000, cloud.NotYet, errBusy)}, err: "IAM is not ready for the change after 2m0s: busy"},
		{name: "what is there already is read first", service: service{answer: answers(1, cloud.Exists, nil)}, calls: "a b", lines: "b made"},
		{name: "what may be ours is told", service: service{answer: answers(1, cloud.Perhaps, nil)}, calls: "a b", lines: "b made, a made"},
		{name: "a refusal is the end", service: service{answer: answers(1, cloud.Refused, errBusy)}, calls: "a", err: "busy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.service
				s.made = map[string]time.Time{}
				for _, n := range strings.Fields(tt.there) {
					s.made[n] = time.Now().Add(-time.Hour)
				}
				lines, err := api(nil).Converge(t.Context(), s.remaining("a", "b"))
				if calls := strings.Join(s.calls, " "); tt.calls != "" && calls != tt.calls {
					t.Errorf("calls %q, want %q", calls, tt.calls)
				}
				if got := strings.Join(lines, ", "); got != tt.lines {
					t.Errorf("lines %q, want %q", got, tt.lines)
				}
				if (err != nil || tt.err != "") && (err == nil || err.Error() != tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
			})
		})
	}
}

func TestConvergeStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		s := service{made: map[string]time.Time{}, delay: time.Hour}
		lines, err := api(nil).Converge(ctx, s.remaining("a"))
		if !errors.Is(err, stopped) || !slices.Equal(lines, []string{"a made"}) {
			t.Errorf("lines %q, error %v: what took effect is told", lines, err)
		}
	})
}

// A stage shows what its steps change, and does what is left of them by then.
func TestStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := service{made: map[string]time.Time{}}
		change := plan.Change{Verb: plan.Create, Thing: "role", Name: "r"}
		if api(nil).Stage(change, nil, s.remaining()) != nil {
			t.Error("an action without steps")
		}
		decide := func(string) (d cloud.Decision, err error) {
			d.Steps, err = s.remaining("a", "b")(t.Context())
			return d, err
		}
		p, err := cloud.Thing[string]{Kind: "role", Name: "r", Missing: true, Found: "r found", Decide: decide,
			Read: func(context.Context) (string, error) { return "", nil }}.Plan(api(nil), "")
		if err != nil || len(p.Notes) > 0 {
			t.Fatalf("error %v, notes %q", err, p.Notes)
		}
		stage := p.Stages[0]
		if a := stage[0]; !slices.Equal(a.Diff, []string{"+ a", "+ b"}) || !slices.Equal(a.Lines, []string{"a made", "b made"}) {
			t.Errorf("action %+v", a)
		}
		for _, want := range []string{"a made b made", ""} {
			if lines, err := stage[0].Do(t.Context()); err != nil || strings.Join(lines, " ") != want {
				t.Errorf("lines %q, error %v, want %q", lines, err, want)
			}
		}
	})
}

// What is created is not looked at before, and after only if an answer leaves a doubt.
func TestCreationLooksWhereThereIsADoubt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		verb   plan.Verb
		answer cloud.Answer // of the first call
		read   bool         // others read it
		looks  int
		lines  string
	}{
		{name: "created", verb: plan.Create, answer: cloud.Accepted, looks: 0, lines: "a made, b made"},
		{name: "created for others to read", verb: plan.Create, answer: cloud.Accepted, read: true, looks: 1, lines: "a made, b made"},
		{name: "updated", verb: plan.Update, answer: cloud.Accepted, looks: 2, lines: "a made, b made"},
		{name: "made by somebody else", verb: plan.Create, answer: cloud.Exists, looks: 2, lines: "b made"},
		{name: "perhaps made by us", verb: plan.Create, answer: cloud.Perhaps, looks: 2, lines: "b made, a made"},
		{name: "busy", verb: plan.Create, answer: cloud.NotYet, looks: 2, lines: "a made, b made"},
		{name: "refused", verb: plan.Create, answer: cloud.Refused, looks: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := service{made: map[string]time.Time{}, answer: answers(1, tt.answer, errBusy)}
				looks, first := 0, s.step("a")
				first.Read = tt.read
				stage := api(nil).Stage(plan.Change{Verb: tt.verb}, []cloud.Step{first, s.step("b")}, func(ctx context.Context) ([]cloud.Step, error) {
					looks++
					return s.remaining("a", "b")(ctx)
				})
				lines, err := stage[0].Do(t.Context())
				if (err != nil) != (tt.answer == cloud.Refused) || looks != tt.looks || strings.Join(lines, ", ") != tt.lines {
					t.Errorf("%d looks, lines %q, error %v; want %d, %q", looks, lines, err, tt.looks, tt.lines)
				}
			})
		})
	}
}

func api(onWait func(cloud.Wait)) cloud.API {
	if onWait == nil {
		onWait = func(cloud.Wait) {}
	}
	return cloud.API{Name: "IAM", Consistency: 2 * time.Minute, CallTime: 5 * time.Minute, OnWait: onWait}
}

// Whatever takes longer than a moment is told every other second, each time with the latest reason.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		p := api(func(w cloud.Wait) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, w.String())
		}).Await("iam:GetRole")
		time.Sleep(11 * time.Second)
		p.Because(errors.New("rate\nexceeded"))
		p.Because(nil)
		time.Sleep(4 * time.Second)
		p.Stop()
		time.Sleep(time.Minute)
		want := []string{"iam:GetRole (2s so far): no answer yet", "iam:GetRole (4s so far): no answer yet", "iam:GetRole (6s so far): no answer yet",
			"iam:GetRole (8s so far): no answer yet", "iam:GetRole takes long (10s so far): no answer yet", "iam:GetRole takes long (12s so far): rate exceeded",
			"iam:GetRole takes long (14s so far): rate exceeded"}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
