package azure

import (
	"context"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// learn remembers an identity.
func (r *run) learn(s identityState) { r.seen.Store(folded(s.name), s) }

// known returns an identity as Azure last showed it; nil if it did not.
func (r *run) known(name string) *identityState {
	v, _ := r.seen.Load(folded(name))
	if s, is := v.(identityState); is {
		return &s
	}
	return nil
}

// stage returns the action that makes a change, as [cloud.API.Stage] does, but for two things. What is new is read before it is made,
// too: a PUT replaces what is there without a word. Once the last step is accepted nothing is read again: Azure shows it late.
func stage(api cloud.API, change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	verb, done := change.Verb, false
	change.Verb = plan.Update
	s := api.Stage(change, steps, func(ctx context.Context) ([]cloud.Step, error) {
		if done {
			return nil, nil
		}
		steps, err := read(ctx)
		if n := len(steps); n > 0 {
			last := steps[n-1].Call
			steps[n-1].Call = func(ctx context.Context) (cloud.Answer, error) {
				answer, err := last(ctx)
				done = answer == cloud.Accepted
				return answer, err
			}
		}
		return steps, err
	})
	for i := range s {
		s[i].Verb = verb
	}
	return s
}

func (r *run) stage(change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	return stage(r.API, change, steps, read)
}

// thing is one that a run makes or brings up to date: a group, an identity or a custom role.
type thing[S any] struct {
	kind, name string
	read       func(context.Context) (*S, error)   // nil if it is not there
	steps      func(have *S) ([]cloud.Step, error) // from what is there
}

// planThing plans to make a thing, or to change what was read of it.
func planThing[S any](api cloud.API, t thing[S], have *S) (plan.Stage, error) {
	steps, err := t.steps(have)
	if err != nil {
		return nil, err
	}
	change := plan.Change{Verb: plan.Update, Thing: t.kind, Name: t.name}
	if have == nil {
		change.Verb = plan.Create
	}
	return stage(api, change, steps, then(t.read, t.steps)), nil
}

// then returns the steps from what is read.
func then[S any](read func(context.Context) (S, error), steps func(S) ([]cloud.Step, error)) cloud.Remaining {
	return func(ctx context.Context) ([]cloud.Step, error) {
		have, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return steps(have)
	}
}

// each calls f for every element of a list at once, as far as calls may be under way, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(arm.Parallel, list, f)
}
