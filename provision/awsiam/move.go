package awsiam

import (
	"cmp"
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
	Adopt    bool   // roles that others made get To's statement too, and keypost's own tag
}

// PlanMove plans a copy of every statement that trusts From, with To in its place, in every role that has one. No statement
// is changed or removed. The error reports a statement that cannot be copied, and a policy that would become too long. Roles that
// are not ours must trust To already: else the error has the problem [ForeignRoles] or [OthersRoles] and has the statements to
// add, and the plan is for the other roles.
func (c *Client) PlanMove(ctx context.Context, m Move) (plan.Plan, error) {
	stage, err := c.adoptFrom(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	trustingRoles, err := c.trusting(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes, extra []string
	var errs, foreign []error
	kind := OthersRoles
	for _, b := range trustingRoles {
		line, err := m.foreign(b)
		switch {
		case b.ours: // it is moved below
		case err != nil:
			errs = append(errs, err)
			continue
		case line == "":
			notes = append(notes, fmt.Sprintf("role %s is not ours, and trusts %s already", b, m.To.ProviderARN))
			continue
		case !b.adopted:
			extra, foreign = append(extra, line), append(foreign, errors.New(line))
			if b.adoptable() {
				kind = ForeignRoles
			}
			continue
		}
		actions, note, err := c.moveRole(m, b)
		errs = append(errs, err)
		stage = append(stage, actions...)
		if note != "" {
			notes = append(notes, note)
		}
	}
	p := plan.Of(notes, stage)
	p.Extra = extra
	if err := errors.Join(errs...); err != nil || len(extra) == 0 {
		return p, err
	}
	return p, problem(kind, "%w", errors.Join(foreign...))
}

// foreign returns what is to be done about a role that is not ours; empty if it trusts To already.
func (m Move) foreign(b trustingRole) (string, error) {
	both, _, rest, err := b.trust.Alongside(m.From.policy(), m.To.policy())
	if err = cmp.Or(err, m.unfinished(b.name, rest)); err != nil || m.covered(b.trust) {
		return "", err
	}
	return fmt.Sprintf("role %s is not ours, and trusts %s for subjects for which it does not trust %s; add this to its trust policy where it is kept: %s",
		b, m.From.ProviderARN, m.To.ProviderARN, strings.Join(both.Beyond(b.trust), ",")), nil
}

// covered reports whether a trust policy that somebody has adapted lets every subject in under To that it lets in under From.
func (m Move) covered(d iampolicy.Document) bool {
	under := d.Subjects(m.To.policy())
	left := slices.DeleteFunc(d.Subjects(m.From.policy()), func(subject string) bool {
		return slices.ContainsFunc(under, func(pattern string) bool { return iampolicy.Matches(pattern, subject) })
	})
	return d.Lets(m.To.ProviderARN) && (len(left) == 0 || len(under) == 0)
}

// adoptFrom plans to tag the provider to move away from, if nobody owns it. The error reports one that is not the cluster's.
func (c *Client) adoptFrom(ctx context.Context, m Move) (plan.Stage, error) {
	arn := m.From.ProviderARN
	have, err := c.Provider(ctx, arn)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return nil, fmt.Errorf("there is no %s %s to move away from", providerThing, arn)
	}
	decide := func(have *ProviderState) ([]cloud.Step, error) {
		missing, diff := tagDifference(have.tags, OwnedBy(m.Name).tags(nil))
		if OwnedBy(m.Name).Owns(have.tags) || len(missing) == 0 {
			return nil, nil
		}
		return []cloud.Step{c.tagProviderStep(arn, missing, diff)}, OwnedBy(m.Name).mayTake(providerThing+" "+arn, have.tags, m.Adopt)
	}
	steps, err := decide(have)
	return c.API.Stage(plan.Change{Verb: plan.Update, Thing: providerThing, Name: arn}, steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.Provider(ctx, arn)
		if err != nil || have == nil {
			return nil, err
		}
		return decide(have)
	}), err
}

// trusting returns the roles that trust From. With m.Adopt, those that have no owner's tag are adopted.
func (c *Client) trusting(ctx context.Context, m Move) ([]trustingRole, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return nil, err
	}
	trustingRoles, err := c.trustingRoles(ctx, m.From, m.Name, roles)
	for i, b := range trustingRoles {
		trustingRoles[i].adopted = m.Adopt && b.adoptable()
	}
	return trustingRoles, err
}

// adoptable reports whether nobody owns a role.
func (b trustingRole) adoptable() bool { return !b.ours && b.owners == "" }

func (b trustingRole) String() string {
	if b.owners == "" {
		return b.name
	}
	return b.name + " (of " + b.owners + ")"
}

// moveRole adds To's statement to a role. What is adopted gets keypost's tag, not the cluster's: deleting the cluster
// must not take a workload's role along.
func (c *Client) moveRole(m Move, b trustingRole) (plan.Stage, string, error) {
	var tags []types.Tag
	if b.adopted {
		tags = OwnedByKeypost().tags(nil)
	}
	steps, err := c.moveSteps(m, b.name, b.trust, tags)
	if err != nil {
		return nil, "", err
	}
	if len(steps) == 0 {
		return nil, fmt.Sprintf("role %s trusts %s already", b.name, m.To.ProviderARN), nil
	}
	return c.updateRole(b.name, steps, func(have *roleState) ([]cloud.Step, error) {
		if err := b.still(have); err != nil {
			return nil, err
		}
		missing, _ := tagDifference(have.tags, tags)
		return c.moveSteps(m, b.name, have.trust, missing)
	}), "", nil
}

func (c *Client) moveSteps(m Move, name string, trust iampolicy.Document, tags []types.Tag) ([]cloud.Step, error) {
	var steps []cloud.Step
	if len(tags) > 0 {
		_, diff := tagDifference(nil, tags)
		steps = append(steps, c.tagRoleStep(name, tags, diff))
	}
	both, diff, rest, err := trust.Alongside(m.From.policy(), m.To.policy())
	if err != nil {
		return nil, fmt.Errorf("trust policy of role %s: %w", name, err)
	}
	if err := m.unfinished(name, rest); err != nil || len(diff) == 0 {
		return steps, err
	}
	s, err := c.trustStep(name, both, m.To.limit(), diff)
	if err != nil {
		return nil, fmt.Errorf("trust policy of role %s with the statements of both issuers: %w", name, err)
	}
	return append(steps, s), nil
}

// unfinished returns an error if there are statements about From that cannot be copied for To.
func (m Move) unfinished(role string, rest []iampolicy.Uncopied) error {
	if len(rest) == 0 {
		return nil
	}
	var lines []string
	for _, s := range rest {
		lines = append(lines, s.String())
	}
	return fmt.Errorf("the trust policy of role %s concerns %s in a way that cannot be copied for %s: %s; "+
		"change it by hand so that it covers both, then run this again", role, m.From.Issuer, m.To.Issuer, strings.Join(lines, "; "))
}

// PlanFinish plans to remove From's statements, then its provider. It returns an error while a role of ours trusts From
// without To, or To's provider is missing. Applying the plan checks the same again
// before each role is changed.
func (c *Client) PlanFinish(ctx context.Context, m Move) (plan.Plan, error) {
	trustingRoles, err := c.trusting(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	provider, err := c.Provider(ctx, m.From.ProviderARN)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	var stage plan.Stage
	var errs []error
	for _, b := range trustingRoles {
		note, err := m.stays(b)
		errs = append(errs, err)
		if err != nil {
			continue
		}
		actions, more, err := c.withdraw(b, m.From, func(trust iampolicy.Document) error {
			b.trust = trust
			_, err := m.stays(b)
			return err
		})
		errs = append(errs, err)
		stage, notes = append(stage, actions...), append(append(notes, note...), more...)
	}
	if err := errors.Join(errs...); err != nil {
		return plan.Of(notes, stage), err
	}
	if provider == nil && len(stage) == 0 {
		return plan.Of(notes), nil
	}
	to, err := c.Provider(ctx, m.To.ProviderARN)
	if err == nil && to == nil {
		err = fmt.Errorf("there is no %s %s to move to: run the move again before finishing it", providerThing, m.To.ProviderARN)
	}
	if err != nil || provider == nil {
		return plan.Of(notes, stage), err
	}
	owner := OwnedBy(m.Name)
	if err := owner.mayTake(providerThing+" "+m.From.ProviderARN, provider.tags, m.Adopt); err != nil {
		return plan.Plan{}, err
	}
	last, err := c.deleteProvider(ctx, m.From.ProviderARN, owner, m.Adopt)
	return plan.Of(notes, stage, last), err
}

// stays returns an error if a role would no longer trust the cluster once From's statements are removed. It returns a note
// if the role would trust it under other conditions. A role that is not ours keeps From's statements, and so may not have any.
func (m Move) stays(b trustingRole) ([]string, error) {
	role, trust := b.name, b.trust
	if !b.ours && !b.adopted {
		return nil, fmt.Errorf("role %s is not ours, and has a statement for %s: take that out where the role is kept, then run this again",
			b, m.From.ProviderARN)
	}
	_, diff, rest, err := trust.Alongside(m.From.policy(), m.To.policy())
	if err != nil {
		return nil, err
	}
	if err := m.unfinished(role, rest); err != nil || len(diff) == 0 {
		return nil, err
	}
	if !trust.Lets(m.To.ProviderARN) {
		return nil, fmt.Errorf("role %s trusts %s and not yet %s: run the move again before finishing it", role, m.From.ProviderARN,
			m.To.ProviderARN)
	}
	return []string{fmt.Sprintf("role %s trusts %s otherwise than %s; from then on only the former holds", role, m.To.ProviderARN,
		m.From.ProviderARN)}, nil
}

// ClientIDs returns the audiences of a provider; none if it is not there.
func (c *Client) ClientIDs(ctx context.Context, providerARN string) ([]string, error) {
	have, err := c.Provider(ctx, providerARN)
	if err != nil || have == nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(have.ClientIDs)), nil
}

// MovedAt returns when the switch away from this provider was first seen complete, as SetMovedAt recorded it; zero if never.
func (c *Client) MovedAt(ctx context.Context, providerARN string) (time.Time, error) {
	tags, err := c.providerTags(ctx, providerARN)
	if err != nil || tags[movedAtKey] == "" {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, tags[movedAtKey])
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
		tags, err := c.providerTags(ctx, providerARN)
		if err != nil || tags[movedAtKey] == want {
			return nil, err
		}
		return []cloud.Step{s}, nil
	})
}
