package iam

import (
	"context"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// learn remembers an identity.
func (r *Run) learn(s identityState) { r.seen.Store(Folded(s.name), s) }

// known returns an identity as Azure last showed it; nil if it did not.
func (r *Run) known(name string) *identityState {
	v, _ := r.seen.Load(Folded(name))
	if s, is := v.(identityState); is {
		return &s
	}
	return nil
}

// Known returns the client and the tenant ID of an identity as Azure last showed it; empty if it did not.
func (r *Run) Known(name string) (client, tenant string) {
	if s := r.known(name); s != nil {
		return s.client, s.tenant
	}
	return "", ""
}

// planThing plans to make a group, an identity or a custom role, or to change what was read of it; nil if it is not there.
func planThing[S any](api cloud.API, kind, name string, have *S, read func(context.Context) (*S, error),
	next func(*S) ([]cloud.Step, error)) (plan.Stage, error) {
	steps, err := next(have)
	if err != nil {
		return nil, err
	}
	change := plan.Change{Verb: plan.Update, Thing: kind, Name: name}
	if have == nil {
		change.Verb = plan.Create
	}
	return api.Stage(change, steps, then(read, next)), nil
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
