package iam

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// MovedAtTag returns the name of the tag, on the resource group of the identities, that keeps when the switch of an installation
// away from an old issuer was first seen complete. Installations may share the group, and one may move again: the time of
// another move would open the gate of this one at once.
func MovedAtTag(installation, old string) string {
	return "keypost.dev_moved-at_" + Suffixed(Folded(installation), Folded(installation)+"\n"+old)
}

// takes reports whether the identity takes tokens of an issuer.
func (t trusting) takes(issuer string) bool {
	return slices.ContainsFunc(t.credentials, func(c Credential) bool { return c.Issuer == issuer })
}

// moving reads the identities. An error says so if none of them has to do with the move: nothing would be moved then, and the
// cluster switched all the same.
func (r *Run) moving(ctx context.Context, old string) ([]trusting, error) {
	all, err := r.ours(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, func(t trusting) bool { return t.takes(old) || t.takes(r.IssuerURL) }) {
		return all, nil
	}
	return nil, fmt.Errorf("no managed identity of %s in resource group %s takes tokens of %s: is the name, the group or the old issuer another one?",
		r.Name, r.O.OIDCGroup, old)
}

// second returns the credentials for the new issuer that stand beside those for the old one. Subjects and audiences are these.
func second(have []Credential, old, issuer string) []Credential {
	var want []Credential
	for _, c := range have {
		if c.Issuer == old {
			c.Issuer = issuer
			want = append(want, c)
		}
	}
	return want
}

// PlanMove plans the second credentials.
func (r *Run) PlanMove(ctx context.Context, old string) (plan.Plan, error) {
	all, err := r.moving(ctx, old)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := r.planEach(all, func(identity string, have []Credential) ([]cloud.Step, error) {
		return r.putSteps(identity, have, r.compare(have, second(have, old, r.IssuerURL), false).put), nil
	})
	for _, m := range all {
		if !m.takes(old) && !m.takes(r.IssuerURL) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("identity %s takes tokens of neither %s nor %s, and is not moved", m.Name, old, r.IssuerURL))
		}
	}
	return p, err
}

// planEach plans a change of the federated credentials of each identity, by the steps from those that it has.
func (r *Run) planEach(all []trusting, steps func(identity string, have []Credential) ([]cloud.Step, error)) (plan.Plan, error) {
	var stage plan.Stage
	for _, m := range all {
		first, err := steps(m.Name, m.credentials)
		if err != nil {
			return plan.Plan{}, err
		}
		read := func(ctx context.Context) ([]Credential, error) { return r.readCredentials(ctx, m.Name) }
		again := cloud.After(read, func(have []Credential) ([]cloud.Step, error) { return steps(m.Name, have) })
		stage = append(stage, r.API.Stage(plan.Change{Verb: plan.Update, Thing: credentialsThing, Name: m.Name}, first, again)...)
	}
	return plan.Of(nil, stage), nil
}

// PlanFinish plans to delete the credentials for the old issuer, each of which must have its second one.
func (r *Run) PlanFinish(ctx context.Context, old string) (plan.Plan, error) {
	all, err := r.moving(ctx, old)
	if err != nil {
		return plan.Plan{}, err
	}
	return r.planEach(all, func(identity string, have []Credential) ([]cloud.Step, error) {
		var gone []Credential
		for _, c := range have {
			if c.Issuer != old {
				continue
			}
			beside := slices.ContainsFunc(have, func(h Credential) bool {
				return h.Issuer == r.IssuerURL && h.Subject == c.Subject && h.Audience == c.Audience
			})
			if !beside {
				return nil, fmt.Errorf("%s %s takes tokens of %s as %s only: move it first", IdentityThing, identity, c.Subject, old)
			}
			gone = append(gone, c)
		}
		return r.deleteSteps(identity, gone), nil
	})
}

// Switch keeps the time of the switch in a tag of the identities' resource group.
type Switch struct {
	Run *Run
	Old string // issuer URL
}

func (s Switch) tag() string { return MovedAtTag(s.Run.Name, s.Old) }

// read returns the group, nil if it is not there, and what is recorded; empty for nothing.
func (s Switch) read(ctx context.Context) (*groupState, string, error) {
	g, err := s.Run.readGroup(ctx, s.Run.O.OIDCGroup)
	if g == nil || err != nil {
		return nil, "", err
	}
	return g, named(g.Tags, s.tag())[s.tag()], nil
}

// MovedAt returns when the switch was recorded; zero if it was not.
func (s Switch) MovedAt(ctx context.Context) (time.Time, error) {
	g, text, err := s.read(ctx)
	if text == "" || err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the tag %s=%s of resource group %s is not a time: take it away, and the wait begins anew",
			s.tag(), text, g.Name)
	}
	return at, nil
}

// SetMovedAt changes that one tag: a write of the group's tags would take away what others wrote since they were read.
func (s Switch) SetMovedAt(ctx context.Context, at time.Time) ([]string, error) {
	g, have, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, fmt.Errorf("there is no resource group %s", s.Run.O.OIDCGroup)
	}
	if !s.Run.Owner.owns(g.Tags) {
		return nil, s.Run.Owner.refuse(groupThing+" "+g.Name, g.Tags)
	}
	operation, value := "Merge", at.UTC().Format(time.RFC3339)
	if at.IsZero() {
		operation, value = "Delete", have
	}
	_, err = s.Run.patchTags(s.Run.O.GroupID(s.Run.O.OIDCGroup), operation, map[string]string{s.tag(): value})(ctx)
	return []string{"Updated tags of resource group " + g.ID}, err
}

// Forget takes away what is recorded.
func (s Switch) Forget(ctx context.Context) error {
	_, text, err := s.read(ctx)
	if text == "" || err != nil {
		return err
	}
	lines, err := s.SetMovedAt(ctx, time.Time{})
	if err == nil {
		s.Run.Lines(lines)
	}
	return err
}
