package awsiam

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision"
)

// Deletion says what to take away of what keypost or ccoctl made under a name.
type Deletion struct {
	Name      string
	IssuerURL string // only this issuer's provider and its statements (and the roles left without any); empty for all
}

// listed is a role as ListRoles shows it: with its trust policy, without its tags.
type listed struct {
	name  string
	trust string
}

func (c *Client) listRoles(ctx context.Context) ([]listed, error) {
	in := &iam.ListRolesInput{MaxItems: aws.Int32(1000)}
	var roles []listed
	for {
		out, err := ask(ctx, c.iam.ListRoles, in)
		if err != nil {
			return nil, err
		}
		for _, r := range out.Roles {
			roles = append(roles, listed{aws.ToString(r.RoleName), aws.ToString(r.AssumeRolePolicyDocument)})
		}
		if !out.IsTruncated {
			return roles, nil
		}
		in.Marker = out.Marker
	}
}

func (c *Client) roleTags(ctx context.Context, name string) (map[string]string, error) {
	in := &iam.ListRoleTagsInput{RoleName: aws.String(name)}
	var all []types.Tag
	for {
		out, err := ask(ctx, c.iam.ListRoleTags, in)
		if isMissing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, out.Tags...)
		if !out.IsTruncated {
			return tagMap(all), nil
		}
		in.Marker = out.Marker
	}
}

// ownedRoles picks a cluster's roles. Their names begin with the cluster's, so the tags of only a few are read: GetRole
// on every role of an account, as ccoctl does, takes minutes and fails at the first role that denies it.
func (c *Client) ownedRoles(ctx context.Context, name string, roles []listed) ([]string, error) {
	var named []string
	for _, r := range roles {
		if strings.HasPrefix(r.name, cut(name+"-")) {
			named = append(named, r.name)
		}
	}
	owned, err := each(named, func(role string) (string, error) {
		tags, err := c.roleTags(ctx, role)
		if !OwnedBy(name).Owns(tags) || OwnedByKeypost().Owns(tags) {
			return "", err
		}
		return role, err
	})
	return slices.DeleteFunc(owned, func(s string) bool { return s == "" }), err
}

// PlanPrune deletes the roles of a cluster that are not in keep.
func (c *Client) PlanPrune(ctx context.Context, name string, keep []string) (provision.Plan, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return provision.Plan{}, err
	}
	owned, err := c.ownedRoles(ctx, name, roles)
	if err != nil {
		return provision.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, minus(owned, keep))
	return planOf(nil, stage), err
}

// PlanDelete deletes what d names: roles first, then providers.
func (c *Client) PlanDelete(ctx context.Context, a Account, d Deletion) (provision.Plan, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return provision.Plan{}, err
	}
	if d.IssuerURL != "" {
		return c.planDeleteIssuer(ctx, a.ProviderARN(d.IssuerURL), d.Name, roles)
	}
	owned, err := c.ownedRoles(ctx, d.Name, roles)
	if err != nil {
		return provision.Plan{}, err
	}
	providers, err := c.ownedProviders(ctx, OwnedBy(d.Name))
	if err != nil {
		return provision.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, owned)
	if err != nil {
		return provision.Plan{}, err
	}
	var last provision.Stage
	for _, arn := range providers {
		last = append(last, c.deleteProvider(arn, OwnedBy(d.Name))...)
	}
	return planOf(leftBehind(roles, owned, providers), stage, last), nil
}

// leftBehind notes the roles that stay and trust a provider that goes.
func leftBehind(roles []listed, gone, providers []string) []string {
	var notes []string
	for _, r := range roles {
		for _, arn := range providers {
			if trusted, err := r.trusts(arn); err == nil && trusted && !slices.Contains(gone, r.name) {
				notes = append(notes, fmt.Sprintf("role %s stays, and trusts %s in vain from then on", r.name, arn))
			}
		}
	}
	return notes
}

// trusts tells whether a role's trust policy names a provider in any statement.
func (l listed) trusts(arn string) (bool, error) {
	d, err := parseDocument(l.trust)
	if plain, e := url.PathUnescape(l.trust); err != nil && e == nil && !strings.Contains(plain, arn) {
		return false, nil // somebody else's, in a form that we do not know
	}
	if err != nil {
		return false, fmt.Errorf("trust policy of role %s: %w", l.name, err)
	}
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return false, err
		}
		if slices.Contains(s.Principal["Federated"], arn) {
			return true, nil
		}
	}
	return false, nil
}

func (c *Client) deleteProvider(arn string, o Owner) provision.Stage {
	s := step{
		in:   &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)},
		done: []string{fmt.Sprintf("Identity Provider with ARN %s deleted", arn)},
	}
	action := provision.Action{Verb: provision.Delete, Thing: providerThing, Name: arn}
	return c.action(action, []step{s}, func(ctx context.Context) ([]step, error) {
		have, err := c.readProvider(ctx, arn)
		if err != nil || have == nil {
			return nil, err
		}
		if !o.zero() && !o.Owns(have.tags) {
			return nil, notOurs(providerThing+" "+arn, o, have.tags)
		}
		return []step{s}, nil
	})
}

func (c *Client) deleteRoles(ctx context.Context, names []string) (provision.Stage, error) {
	stages, err := each(names, func(name string) (provision.Stage, error) { return c.deleteRole(ctx, name) })
	return slices.Concat(stages...), err
}

func (c *Client) deleteRole(ctx context.Context, name string) (provision.Stage, error) {
	read := func(ctx context.Context) ([]step, error) { return c.removalSteps(ctx, name) }
	steps, err := read(ctx)
	return c.action(provision.Action{Verb: provision.Delete, Thing: roleThing, Name: name}, steps, read), err
}

// removalSteps empties a role and deletes it: IAM deletes none that has policies. A role that is not there takes none.
func (c *Client) removalSteps(ctx context.Context, name string) ([]step, error) {
	inline, err := c.inlinePolicies(ctx, name)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	attached, err := c.attached(ctx, name)
	if err != nil && !isMissing(err) {
		return nil, err
	}
	var steps []step
	role := aws.String(name)
	for _, p := range inline {
		steps = append(steps, step{
			in:   &iam.DeleteRolePolicyInput{RoleName: role, PolicyName: aws.String(p)},
			diff: []string{"- inline policy " + p},
			done: []string{fmt.Sprintf("Policy %s associated with IAM Role %s deleted", p, name)},
		})
	}
	for _, arn := range attached {
		steps = append(steps, step{
			in:   &iam.DetachRolePolicyInput{RoleName: role, PolicyArn: aws.String(arn)},
			diff: []string{"- managed policy " + arn},
		})
	}
	return append(steps, step{in: &iam.DeleteRoleInput{RoleName: role}, done: []string{fmt.Sprintf("IAM Role %s deleted", name)}}), nil
}

func (c *Client) inlinePolicies(ctx context.Context, name string) ([]string, error) {
	in := &iam.ListRolePoliciesInput{RoleName: aws.String(name)}
	var names []string
	for {
		out, err := ask(ctx, c.iam.ListRolePolicies, in)
		if err != nil {
			return nil, err
		}
		names = append(names, out.PolicyNames...)
		if !out.IsTruncated {
			return names, nil
		}
		in.Marker = out.Marker
	}
}

// planDeleteIssuer takes one issuer's statements and provider away. Roles of others keep their statement.
func (c *Client) planDeleteIssuer(ctx context.Context, arn, name string, roles []listed) (provision.Plan, error) {
	provider, err := c.readProvider(ctx, arn)
	if err != nil {
		return provision.Plan{}, err
	}
	var last provision.Stage
	if provider != nil {
		if !OwnedBy(name).Owns(provider.tags) {
			return provision.Plan{}, notOurs(providerThing+" "+arn, OwnedBy(name), provider.tags)
		}
		last = c.deleteProvider(arn, OwnedBy(name))
	}
	bearers, err := c.bearers(ctx, arn, name, roles)
	if err != nil {
		return provision.Plan{}, err
	}
	var notes []string
	var stage provision.Stage
	for _, b := range bearers {
		actions, more, err := c.withdraw(ctx, b, arn)
		if err != nil {
			return provision.Plan{}, err
		}
		stage, notes = append(stage, actions...), append(notes, more...)
	}
	return planOf(notes, stage, last), nil
}

// bearer is a role whose trust policy names a provider.
type bearer struct {
	name  string
	trust document
	ours  bool // the cluster's, or made by create-role
	whose string
}

func (c *Client) bearers(ctx context.Context, arn, name string, roles []listed) ([]bearer, error) {
	var naming []listed
	for _, r := range roles {
		trusted, err := r.trusts(arn)
		if err != nil {
			return nil, err
		}
		if trusted {
			naming = append(naming, r)
		}
	}
	return each(naming, func(r listed) (bearer, error) {
		d, err := parseDocument(r.trust)
		if err != nil {
			return bearer{}, err
		}
		tags, err := c.roleTags(ctx, r.name)
		return bearer{name: r.name, trust: d, ours: OwnedBy(name).Owns(tags) || OwnedByKeypost().Owns(tags), whose: otherOwners(tags)}, err
	})
}

// withdraw takes a provider's statements out of a role's trust policy. IAM refuses a policy without statements, so a
// role of ours goes with its last one.
func (c *Client) withdraw(ctx context.Context, b bearer, arn string) (provision.Stage, []string, error) {
	if !b.ours {
		return nil, []string{fmt.Sprintf("role %s is not ours: it stays, and trusts %s in vain from then on", b.name, arn)}, nil
	}
	rest, diff, err := b.trust.without(arn)
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	if left, err := (listed{b.name, rest.String()}).trusts(arn); err == nil && left {
		notes = append(notes, fmt.Sprintf("role %s keeps a statement that names %s and is not ours", b.name, arn))
	}
	if len(diff) == 0 {
		return nil, notes, nil
	}
	if len(rest.Statement) == 0 {
		stage, err := c.deleteRole(ctx, b.name)
		return stage, notes, err
	}
	action := provision.Action{Verb: provision.Update, Thing: roleThing, Name: b.name}
	return c.action(action, []step{{in: trustInput(b.name, rest.String()), diff: diff}}, func(ctx context.Context) ([]step, error) {
		return c.withdrawalSteps(ctx, b.name, arn)
	}), notes, nil
}

func (c *Client) withdrawalSteps(ctx context.Context, name, arn string) ([]step, error) {
	have, err := c.readRole(ctx, Role{Name: name})
	if err != nil || have == nil {
		return nil, err
	}
	rest, diff, err := have.trust.without(arn)
	if err != nil || len(diff) == 0 {
		return nil, err
	}
	if len(rest.Statement) == 0 {
		return nil, fmt.Errorf("its trust policy has changed meanwhile and names nobody else now; make the plan again")
	}
	return []step{{in: trustInput(name, rest.String()), diff: diff}}, nil
}

func trustInput(name, text string) *iam.UpdateAssumeRolePolicyInput {
	return &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(name), PolicyDocument: aws.String(text)}
}
