package awsiam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/plan"
)

// Move is the move of a live cluster from one issuer to another. To's provider must exist or be planned before.
type Move struct {
	Name     string // the cluster's: its roles, and From's provider, bear its tag
	From, To Trust  // To.Audiences are required of tokens where From's statement asked for none
	Adopt    bool   // for PlanMove: what nobody owns becomes ours, the roles by keypost's own tag
}

// PlanMove plans a copy of every statement that trusts From, with To in its place, in every role that has one. No statement
// is changed or removed. The error reports a statement that cannot be copied, and a policy that would become too long. Roles that
// are not ours must trust To already: else the error has the problem [ForeignRoles] or [OthersRoles] and has the statements to
// add, and the plan is for the other roles.
func (c *Client) PlanMove(ctx context.Context, m Move) (plan.Plan, error) {
	p, err := c.adoptFrom(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	roles, err := c.trustingRoles(ctx, m.From, m.Name)
	if err != nil {
		return plan.Plan{}, err
	}
	var stage plan.Stage
	var errs, foreign []error
	kind := OthersRoles
	for _, b := range roles {
		added, err := m.copied(b)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !b.ours && m.covered(b.trust):
			p.Notes = append(p.Notes, fmt.Sprintf("role %s is not ours, and trusts %s already", b, m.To.ProviderARN))
		case b.ours, m.Adopt && b.adoptable():
			actions, err := c.moveRole(m, b)
			if errs = append(errs, err); len(actions) == 0 {
				p.Notes = append(p.Notes, fmt.Sprintf("role %s trusts %s already", b.name, m.To.ProviderARN))
			}
			stage = append(stage, actions...)
		default:
			foreign = append(foreign, fmt.Errorf("role %s is not ours, and trusts %s for subjects for which it does not trust %s; "+
				"add this to its trust policy where it is kept: %s", b, m.From.ProviderARN, m.To.ProviderARN, strings.Join(added, ",")))
			p.Extra = append(p.Extra, foreign[len(foreign)-1].Error())
			if b.adoptable() {
				kind = ForeignRoles
			}
		}
	}
	p = p.Beside(plan.Of(nil, stage))
	if err := errors.Join(errs...); err != nil || len(foreign) == 0 {
		return p, err
	}
	return p, problem(kind, "%w", errors.Join(foreign...))
}

// covered reports whether a trust policy that somebody has adapted lets every subject in under To that it lets in under From.
func (m Move) covered(d iampolicy.Document) bool {
	under := d.Subjects(m.To.policy())
	left := slices.DeleteFunc(d.Subjects(m.From.policy()), func(subject string) bool {
		return slices.ContainsFunc(under, func(pattern string) bool { return iampolicy.Matches(pattern, subject) })
	})
	return d.Lets(m.To.ProviderARN) && (len(left) == 0 || len(under) == 0)
}

// copied returns the statements for To that a role does not have yet. The error reports statements about From that cannot be copied.
func (m Move) copied(b trustingRole) (added []string, err error) {
	_, added, uncopied := b.trust.Alongside(m.From.policy(), m.To.policy())
	if len(uncopied) > 0 {
		return nil, fmt.Errorf("the trust policy of role %s concerns %s in a way that cannot be copied for %s: %s; "+
			"change it by hand so that it covers both, then run this again", b.name, m.From.Issuer, m.To.Issuer, strings.Join(uncopied, "; "))
	}
	return added, nil
}

// adoptFrom plans to tag the provider to move away from, if nobody owns it. The error reports one that is not the cluster's.
func (c *Client) adoptFrom(ctx context.Context, m Move) (plan.Plan, error) {
	arn, owner := m.From.ProviderARN, OwnedBy(m.Name)
	read := func(ctx context.Context) (*ProviderState, error) {
		have, err := c.Provider(ctx, arn)
		if err == nil && have == nil {
			err = fmt.Errorf("there is no %s %s to move away from", providerThing, arn)
		}
		return have, err
	}
	have, err := read(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	return cloud.Thing[*ProviderState]{
		Kind: providerThing, Name: arn, Found: "Existing Identity Provider found with ARN: " + arn, Read: read,
		Decide: func(have *ProviderState) (d cloud.Decision, err error) {
			if missing, diff := tagDifference(have.tags, owner.tags(nil)); !owner.Owns(have.tags) {
				d.Steps = []cloud.Step{c.tagProviderStep(arn, missing, diff)}
			}
			return d, owner.mayTake(providerThing+" "+arn, have.tags, m.Adopt)
		},
	}.Plan(c.API, have)
}

// moveRole plans to add To's statement to a role. What is adopted gets keypost's tag, not the cluster's: deleting the cluster
// must not take a workload's role along.
func (c *Client) moveRole(m Move, b trustingRole) (plan.Stage, error) {
	steps := func(trust iampolicy.Document, tags []types.Tag) (steps []cloud.Step, err error) {
		if len(tags) > 0 {
			_, diff := tagDifference(nil, tags)
			steps = append(steps, c.tagRoleStep(b.name, tags, diff))
		}
		both, added, _ := trust.Alongside(m.From.policy(), m.To.policy())
		if len(added) == 0 {
			return steps, nil
		}
		for i, line := range added {
			added[i] = "+ " + line
		}
		s, err := c.trustStep(b.name, both, m.To.limit(), added)
		if err != nil {
			return nil, fmt.Errorf("trust policy of role %s with the statements of both issuers: %w", b.name, err)
		}
		return append(steps, s), nil
	}
	var tags []types.Tag
	if !b.ours {
		tags = OwnedByKeypost().tags(nil)
	}
	planned, err := steps(b.trust, tags)
	return c.updateRole(b.name, planned, func(have *roleState) ([]cloud.Step, error) {
		missing, _ := tagDifference(have.tags, tags)
		return steps(have.trust, missing)
	}), err
}

// PlanFinish plans to remove From's statements, then its provider. It returns an error while a role of ours trusts From
// without To, while a role that is not ours has a statement for From, or if To's provider is missing.
func (c *Client) PlanFinish(ctx context.Context, m Move) (plan.Plan, error) {
	roles, err := c.trustingRoles(ctx, m.From, m.Name)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	var stage plan.Stage
	var errs []error
	for _, b := range roles {
		added, err := m.copied(b)
		switch {
		case !b.ours:
			err = fmt.Errorf("role %s is not ours, and has a statement for %s: take that out where the role is kept, then run this again",
				b, m.From.ProviderARN)
		case err == nil && len(added) > 0 && !b.trust.Lets(m.To.ProviderARN):
			err = fmt.Errorf("role %s trusts %s and not yet %s: run the move again before finishing it", b.name, m.From.ProviderARN, m.To.ProviderARN)
		case len(added) > 0:
			notes = append(notes, fmt.Sprintf("role %s trusts %s otherwise than %s; from then on only the former holds", b.name, m.To.ProviderARN,
				m.From.ProviderARN))
		}
		actions, failed := c.withdraw(b, m.From)
		errs, stage = append(errs, err, failed), append(stage, actions...)
	}
	if err := errors.Join(errs...); err != nil {
		return plan.Of(notes, stage), err
	}
	last, err := c.deleteProvider(ctx, m.From.ProviderARN, OwnedBy(m.Name))
	if err != nil || len(stage)+len(last) == 0 {
		return plan.Of(notes), err
	}
	to, err := c.Provider(ctx, m.To.ProviderARN)
	if err == nil && to == nil {
		err = fmt.Errorf("there is no %s %s to move to: run the move again before finishing it", providerThing, m.To.ProviderARN)
	}
	return plan.Of(notes, stage, last), err
}

// MovedAt returns when the switch away from this provider was first seen complete, as SetMovedAt recorded it; zero if never.
func (c *Client) MovedAt(ctx context.Context, providerARN string) (time.Time, error) {
	have, err := c.Provider(ctx, providerARN)
	if err != nil || have == nil || have.tags[movedAtKey] == "" {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, have.tags[movedAtKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("tag %s of %s is not a time (RFC 3339): take it away and begin again", movedAtKey, providerARN)
	}
	return at, nil
}

// SetMovedAt records on the provider (tag keypost.dev/moved-at) when the switch away from it was first seen complete;
// the zero time removes the record. It returns the lines of the calls that it made.
func (c *Client) SetMovedAt(ctx context.Context, providerARN string, at time.Time) (lines []string, err error) {
	id, want := aws.String(providerARN), ""
	s := api.NewStep(c.Client, c.IAM.UntagOpenIDConnectProvider, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: id, TagKeys: []string{movedAtKey}},
		fmt.Sprintf("Tag %s removed from Identity Provider with ARN %s", movedAtKey, providerARN))
	if !at.IsZero() {
		want = at.UTC().Format(time.RFC3339)
		s = c.tagProviderStep(providerARN, []types.Tag{tag(movedAtKey, want)}, nil)
	}
	return c.API.Converge(ctx, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.Provider(ctx, providerARN)
		if err != nil || have == nil || have.tags[movedAtKey] == want {
			return nil, err
		}
		return []cloud.Step{s}, nil
	})
}
