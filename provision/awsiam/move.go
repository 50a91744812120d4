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

	"github.com/keypost/keypost/internal/text"
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
// is changed or removed. The error reports a statement that cannot be copied, and a policy that would become too long.
func (c *Client) PlanMove(ctx context.Context, m Move) (plan.Plan, error) {
	provider, err := c.fromProvider(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	trustingRoles, err := c.trusting(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	var stage plan.Stage
	var errs []error
	if !m.ours(provider) {
		stage = c.adoptProvider(m, provider)
	}
	for _, b := range trustingRoles {
		actions, note, err := c.moveRole(m, b)
		errs = append(errs, err)
		stage = append(stage, actions...)
		if note != "" {
			notes = append(notes, note)
		}
	}
	return plan.Of(notes, stage), errors.Join(errs...)
}

func (m Move) ours(p *providerState) bool { return OwnedBy(m.Name).Owns(p.tags) }

// fromProvider reads the provider to move away from. The error reports one that is not the cluster's.
func (c *Client) fromProvider(ctx context.Context, m Move) (*providerState, error) {
	provider, err := c.readProvider(ctx, m.From.ProviderARN)
	if err != nil {
		return nil, err
	}
	if provider == nil {
		return nil, fmt.Errorf("there is no %s %s to move away from", providerThing, m.From.ProviderARN)
	}
	if !m.ours(provider) && !m.Adopt {
		return nil, notOurs(providerThing+" "+m.From.ProviderARN, OwnedBy(m.Name), provider.tags, adoptable)
	}
	return provider, nil
}

// trusting returns the roles that trust From. The error names those that are neither the cluster's nor made by
// create-role, unless m adopts them.
func (c *Client) trusting(ctx context.Context, m Move) ([]trustingRole, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return nil, err
	}
	trustingRoles, err := c.trustingRoles(ctx, m.From, m.Name, roles)
	if err != nil {
		return nil, err
	}
	var foreign []string
	for i, b := range trustingRoles {
		if !b.ours {
			trustingRoles[i].adopted = true
			foreign = append(foreign, b.String())
		}
	}
	if len(foreign) > 0 && !m.Adopt {
		return nil, problem(ForeignRoles, "%s is trusted by %s with neither the tag %s nor %s: %s",
			m.From.ProviderARN, text.Count(len(foreign), "role", "roles"), OwnedBy(m.Name), OwnedByKeypost(), strings.Join(foreign, ", "))
	}
	return trustingRoles, nil
}

func (b trustingRole) String() string {
	if b.owners == "" {
		return b.name
	}
	return b.name + " (of " + b.owners + ")"
}

func (c *Client) adoptProvider(m Move, have *providerState) plan.Stage {
	if !m.Adopt {
		return nil
	}
	steps := func(have *providerState) []step {
		missing, diff := tagDifference(have.tags, OwnedBy(m.Name).tags(nil))
		if len(missing) == 0 {
			return nil
		}
		return []step{tagProviderStep(m.From.ProviderARN, missing, diff)}
	}
	change := plan.Change{Verb: plan.Update, Thing: providerThing, Name: m.From.ProviderARN}
	return c.action(change, steps(have), func(ctx context.Context) ([]step, error) {
		have, err := c.readProvider(ctx, m.From.ProviderARN)
		if err != nil || have == nil {
			return nil, err
		}
		return steps(have), nil
	})
}

// moveRole adds To's statement to a role. What is adopted gets keypost's tag, not the cluster's: deleting the cluster
// must not take a workload's role along.
func (c *Client) moveRole(m Move, b trustingRole) (plan.Stage, string, error) {
	var tags []types.Tag
	if b.adopted {
		tags = OwnedByKeypost().tags(nil)
	}
	steps, err := moveSteps(m, b.name, b.trust, tags)
	if err != nil {
		return nil, "", err
	}
	if len(steps) == 0 {
		return nil, fmt.Sprintf("role %s trusts %s already", b.name, m.To.ProviderARN), nil
	}
	return c.updateRole(b.name, steps, func(have *roleState) ([]step, error) {
		if err := b.still(have); err != nil {
			return nil, err
		}
		missing, _ := tagDifference(have.tags, tags)
		return moveSteps(m, b.name, have.trust, missing)
	}), "", nil
}

func moveSteps(m Move, name string, trust iampolicy.Document, tags []types.Tag) ([]step, error) {
	var steps []step
	if len(tags) > 0 {
		_, diff := tagDifference(nil, tags)
		steps = append(steps, tagRoleStep(name, tags, diff))
	}
	both, diff, rest, err := trust.Alongside(m.From.policy(), m.To.policy())
	if err != nil {
		return nil, fmt.Errorf("trust policy of role %s: %w", name, err)
	}
	if err := m.unfinished(name, rest); err != nil || len(diff) == 0 {
		return steps, err
	}
	text, err := both.Fit(m.To.limit())
	if err != nil {
		return nil, problem(TrustTooLong, "trust policy of role %s with the statements of both issuers %w: shorten it, or have the account's "+
			"quota L-C07B4B0D raised", name, err)
	}
	return append(steps, trustStep(name, text, diff)), nil
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
// without To, or To's provider is missing or accepts fewer audiences than From's. Applying the plan checks the same again
// before each call.
func (c *Client) PlanFinish(ctx context.Context, m Move) (plan.Plan, error) {
	trustingRoles, err := c.trusting(ctx, m)
	if err != nil {
		return plan.Plan{}, err
	}
	provider, err := c.readProvider(ctx, m.From.ProviderARN)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes []string
	var stage plan.Stage
	var errs []error
	for _, b := range trustingRoles {
		note, err := m.stays(b.name, b.trust)
		errs = append(errs, err)
		if err != nil {
			continue
		}
		actions, more, err := c.withdraw(b, m.From, func(ctx context.Context, trust iampolicy.Document) error {
			_, err := m.stays(b.name, trust)
			return errors.Join(err, c.checkAudiences(ctx, m, provider))
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
	if err := c.checkAudiences(ctx, m, provider); err != nil || provider == nil {
		return plan.Of(notes, stage), err
	}
	owner := OwnedBy(m.Name)
	switch {
	case m.ours(provider):
	case m.Adopt:
		owner = Owner{}
	default:
		return plan.Plan{}, notOurs(providerThing+" "+m.From.ProviderARN, owner, provider.tags, adoptable)
	}
	last := c.deleteProvider(m.From.ProviderARN, owner, func(ctx context.Context) error { return c.checkFinish(ctx, m, provider) })
	return plan.Of(notes, stage, last), nil
}

// checkFinish returns an error if From's provider may not be deleted by now: a role that needs it may be new, or have been
// reset.
func (c *Client) checkFinish(ctx context.Context, m Move, from *providerState) error {
	trustingRoles, err := c.trusting(ctx, m)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range trustingRoles {
		if b.trust.Names(m.From.ProviderARN) { // else From's statements are gone, and it may still be mentioned elsewhere
			_, err := m.stays(b.name, b.trust)
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.checkAudiences(ctx, m, from))...)
}

// checkAudiences returns an error if there is no provider for To, or From's accepts tokens for an audience that To's does
// not. From is nil if it has no provider.
func (c *Client) checkAudiences(ctx context.Context, m Move, from *providerState) error {
	to, err := c.readProvider(ctx, m.To.ProviderARN)
	if err != nil {
		return err
	}
	if to == nil {
		return fmt.Errorf("there is no %s %s to move to: run the move again before finishing it", providerThing, m.To.ProviderARN)
	}
	if from == nil {
		return nil
	}
	if lost := minus(from.clientIDs, to.clientIDs); len(lost) > 0 {
		return fmt.Errorf("%s takes tokens for the audience %s, and %s does not: run the move again before finishing it",
			m.From.ProviderARN, strings.Join(lost, ", "), m.To.ProviderARN)
	}
	return nil
}

// stays returns an error if a role would no longer trust the cluster once From's statements are removed. It returns a note
// if the role would trust it under other conditions.
func (m Move) stays(role string, trust iampolicy.Document) ([]string, error) {
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
	have, err := c.readProvider(ctx, providerARN)
	if err != nil || have == nil {
		return nil, err
	}
	return slices.Sorted(slices.Values(have.clientIDs)), nil
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
	s := newStep((*iam.Client).UntagOpenIDConnectProvider, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: id, TagKeys: []string{movedAtKey}},
		fmt.Sprintf("Tag %s removed from Identity Provider with ARN %s", movedAtKey, providerARN))
	if !at.IsZero() {
		want = at.UTC().Format(time.RFC3339)
		s = tagProviderStep(providerARN, []types.Tag{tag(movedAtKey, want)}, nil)
	}
	return c.converge(ctx, func(ctx context.Context) ([]step, error) {
		tags, err := c.providerTags(ctx, providerARN)
		if err != nil || tags[movedAtKey] == want {
			return nil, err
		}
		return []step{s}, nil
	})
}
