package awsiam

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/plan"
)

// Deletion describes what to delete of what keypost or ccoctl made under a name. Roles are deleted only with the whole
// installation, and only those that have its tag.
type Deletion struct {
	Name      string
	IssuerURL string // only this issuer's provider, and its statements in the trust policies of roles of ours; empty for all
}

// listed is a role as ListRoles shows it: with its trust policy, without its tags.
type listed struct{ name, trust string }

func (c *Client) listRoles(ctx context.Context) ([]listed, error) {
	pages := iam.NewListRolesPaginator(c.IAM, &iam.ListRolesInput{MaxItems: aws.Int32(1000)})
	return api.All(ctx, c.Client, pages, func(page *iam.ListRolesOutput) (roles []listed) {
		for _, r := range page.Roles {
			roles = append(roles, listed{aws.ToString(r.RoleName), aws.ToString(r.AssumeRolePolicyDocument)})
		}
		return roles
	})
}

// ownedRoles returns the names of a cluster's roles. They begin with the cluster's, so the tags of only a few are read:
// to ask for every role of an account, as ccoctl does, takes minutes and fails at the first role that denies it.
func (c *Client) ownedRoles(ctx context.Context, name string, roles []listed) (owned, error) {
	var named []string
	for _, r := range roles {
		if strings.HasPrefix(r.name, ccoctl.RoleNamePrefix(name)) {
			named = append(named, r.name)
		}
	}
	return filterOwned(named, OwnedBy(name), func(role string) (map[string]string, error) {
		have, err := c.readRole(ctx, Role{Name: role})
		if have == nil {
			return map[string]string{}, err
		}
		return have.tags, err
	})
}

// undecided returns an error for things whose tags the caller may not read, with the permission that it needs, and for things of two
// owners; nil for none.
func (o owned) undecided(permission string) error {
	switch {
	case len(o.unread) > 0:
		return fmt.Errorf("the caller may not read the tags of %s, so nobody knows whether they are to be deleted; "+
			"allow %s on them. Nothing was changed", strings.Join(o.unread, ", "), permission)
	case len(o.shared) > 0:
		return fmt.Errorf("%s bear another owner's tag too: take one of the tags off, and run it again. Nothing was changed", strings.Join(o.shared, ", "))
	}
	return nil
}

// PlanPrune plans to delete the roles of a cluster that are not in keep. With list it changes nothing, and names them as beyond what
// is wanted; if the caller may not list roles, a note reports that.
func (c *Client) PlanPrune(ctx context.Context, name string, keep []string, list bool) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if list && api.IsDenied(err) {
		return plan.Plan{Notes: []string{"roles that nobody asked for were not looked for: " + err.Error()}}, nil
	}
	if err != nil {
		return plan.Plan{}, err
	}
	roles = slices.DeleteFunc(roles, func(r listed) bool { return slices.Contains(keep, r.name) })
	mine, err := c.ownedRoles(ctx, name, roles)
	var p plan.Plan
	for _, role := range mine.unread {
		p.Notes = append(p.Notes, fmt.Sprintf("%s %s was not looked at: the caller may not read its tags", roleThing, role))
	}
	for _, role := range mine.shared {
		p.Notes = append(p.Notes, fmt.Sprintf("role %s belongs to another owner too, and stays", role))
	}
	if !list {
		err = cmp.Or(err, mine.undecided("iam:GetRole"))
	}
	if err != nil {
		return plan.Plan{}, err
	}
	if !list {
		stage, err := c.deleteRoles(ctx, mine.ours)
		return plan.Of(p.Notes, stage), err
	}
	for _, role := range mine.ours {
		p.Extra = append(p.Extra, fmt.Sprintf("role %s of %s is there, and nobody asked for it; --prune deletes it", role, name))
	}
	return p, nil
}

// PlanDelete plans to delete what d describes: roles first, then providers.
func (c *Client) PlanDelete(ctx context.Context, a Account, d Deletion) (plan.Plan, error) {
	if d.IssuerURL != "" {
		return c.planDeleteIssuer(ctx, Trust{ProviderARN: a.ProviderARN(d.IssuerURL), Issuer: d.IssuerURL}, d)
	}
	roles, err := c.listRoles(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	owner := OwnedBy(d.Name)
	mine, err := c.ownedRoles(ctx, d.Name, roles)
	if err = cmp.Or(err, mine.undecided("iam:GetRole")); err != nil {
		return plan.Plan{}, err
	}
	providers, err := c.ownedProviders(ctx, owner)
	if err = cmp.Or(err, providers.undecided("iam:GetOpenIDConnectProvider")); err != nil {
		return plan.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, mine.ours)
	if err != nil {
		return plan.Plan{}, err
	}
	last, err := each(providers.ours, func(arn string) (plan.Stage, error) { return c.deleteProvider(ctx, arn, owner) })
	return plan.Of(leftBehind(roles, mine.ours, providers.ours), stage, slices.Concat(last...)), err
}

// leftBehind returns notes about the roles that stay and trust a deleted provider.
func leftBehind(roles []listed, gone, providers []string) []string {
	var notes []string
	for _, r := range roles {
		for _, arn := range providers {
			if d, err := r.policy(arn); err == nil && d != nil && d.Names(arn) && !slices.Contains(gone, r.name) {
				notes = append(notes, fmt.Sprintf("role %s stays, and keeps a statement for the deleted provider %s", r.name, arn))
			}
		}
	}
	return notes
}

// policy returns a role's trust policy; nil for one that cannot be parsed and does not contain the text.
func (l listed) policy(text string) (*iampolicy.Document, error) {
	d, err := iampolicy.Parse(l.trust)
	if plain, e := url.PathUnescape(l.trust); err != nil && e == nil && !strings.Contains(plain, text) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("trust policy of role %s: %w", l.name, err)
	}
	return &d, nil
}

// deleteProvider plans to delete an owner's provider; nothing if it is not there. Applying the plan reads its tags again, and returns
// once IAM shows that it is gone: what was deleted before it, IAM no longer shows by then either.
func (c *Client) deleteProvider(ctx context.Context, arn string, o Owner) (plan.Stage, error) {
	in := &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)}
	s := api.NewDelete(c.Client, c.IAM.DeleteOpenIDConnectProvider, in, fmt.Sprintf("Identity Provider with ARN %s deleted", arn))
	remaining := func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.Provider(ctx, arn)
		if err != nil || have == nil {
			return nil, err
		}
		if !o.Owns(have.tags) {
			return nil, o.notOurs(providerThing+" "+arn, have.tags)
		}
		return []cloud.Step{s}, nil
	}
	steps, err := remaining(ctx)
	return c.API.Stage(plan.Change{Verb: plan.Delete, Thing: providerThing, Name: arn}, steps, remaining), err
}

// deleteRoles plans to delete roles, whose tags were just read. A call that IAM does not accept yet is made again, with what the
// role has by then.
func (c *Client) deleteRoles(ctx context.Context, names []string) (plan.Stage, error) {
	stages, err := each(names, func(name string) (plan.Stage, error) {
		remaining := func(ctx context.Context) ([]cloud.Step, error) { return c.removalSteps(ctx, name) }
		steps, err := remaining(ctx)
		return c.API.Deletion(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: name}, steps, remaining), err
	})
	return slices.Concat(stages...), err
}

// removalSteps returns the steps that delete a role's policies and then the role, since IAM deletes no role that has
// policies. A missing role needs no steps.
func (c *Client) removalSteps(ctx context.Context, name string) ([]cloud.Step, error) {
	inline, err := c.inlinePolicies(ctx, name)
	if api.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	attached, err := c.attached(ctx, name)
	if err != nil && !api.IsMissing(err) {
		return nil, err
	}
	var steps []cloud.Step
	for _, p := range inline {
		steps = append(steps, c.deletePolicyStep(name, p))
	}
	for _, arn := range attached {
		steps = append(steps, c.detachStep(name, arn))
	}
	return append(steps, api.NewDelete(c.Client, c.IAM.DeleteRole, &iam.DeleteRoleInput{RoleName: aws.String(name)}, fmt.Sprintf("IAM Role %s deleted", name))), nil
}

func (c *Client) deletePolicyStep(role, policy string) cloud.Step {
	in := &iam.DeleteRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(policy)}
	return api.NewDelete(c.Client, c.IAM.DeleteRolePolicy, in, fmt.Sprintf("Policy %s associated with IAM Role %s deleted", policy, role), "- inline policy "+policy)
}

func (c *Client) detachStep(role, arn string) cloud.Step {
	in := &iam.DetachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)}
	return api.NewDelete(c.Client, c.IAM.DetachRolePolicy, in, fmt.Sprintf("Policy %s detached from IAM Role %s", arn, role), "- managed policy "+arn)
}

func (c *Client) inlinePolicies(ctx context.Context, name string) ([]string, error) {
	pages := iam.NewListRolePoliciesPaginator(c.IAM, &iam.ListRolePoliciesInput{RoleName: aws.String(name)})
	return api.All(ctx, c.Client, pages, func(page *iam.ListRolePoliciesOutput) []string { return page.PolicyNames })
}

// planDeleteIssuer plans to delete one issuer's statements and its provider. No role is deleted.
func (c *Client) planDeleteIssuer(ctx context.Context, t Trust, d Deletion) (plan.Plan, error) {
	last, err := c.deleteProvider(ctx, t.ProviderARN, OwnedBy(d.Name))
	if err != nil {
		return plan.Plan{}, err
	}
	trustingRoles, err := c.trustingRoles(ctx, t, d.Name)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes, stranded []string
	var trusting owned
	var stage plan.Stage
	for _, b := range trustingRoles {
		if b.unread {
			trusting.unread = append(trusting.unread, b.name)
		}
		if b.trust.TrustsOnly(t.ProviderARN) {
			stranded = append(stranded, b.String())
			notes = append(notes, fmt.Sprintf("role %s stays, and keeps a statement for the deleted provider %s: nobody may assume it", b, t.ProviderARN))
			continue
		}
		if !b.ours {
			notes = append(notes, fmt.Sprintf("role %s is not ours: it stays, and keeps a statement for the deleted provider %s", b, t.ProviderARN))
			continue
		}
		actions, err := c.withdraw(b, t)
		if err != nil {
			return plan.Plan{}, err
		}
		stage = append(stage, actions...)
	}
	if err := trusting.undecided("iam:GetRole"); err != nil {
		return plan.Plan{}, err
	}
	if len(stranded) > 0 && len(last) > 0 {
		return plan.Plan{}, problem(Stranded, "%s would trust nobody without %s, and nobody could assume them any more: %s; nothing was changed",
			text.Count(len(stranded), "role", "roles"), d.IssuerURL, strings.Join(stranded, ", "))
	}
	return plan.Of(notes, stage, last), nil
}

// trustingRole is a role whose trust policy mentions an issuer.
type trustingRole struct {
	name   string
	trust  iampolicy.Document
	ours   bool   // the cluster's, or made by create-role
	owners string // all of them, for messages
	unread bool   // the caller may not read its tags
}

// adoptable reports whether nobody owns a role.
func (b trustingRole) adoptable() bool { return !b.ours && b.owners == "" }

func (b trustingRole) String() string {
	if b.owners == "" {
		return b.name
	}
	return b.name + " (of " + b.owners + ")"
}

// trustingRoles returns the roles of the account whose trust policies mention an issuer.
func (c *Client) trustingRoles(ctx context.Context, t Trust, name string) ([]trustingRole, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return nil, err
	}
	var found []trustingRole
	for _, r := range roles {
		d, err := r.policy(iampolicy.HostPath(t.Issuer))
		if err != nil {
			return nil, err
		}
		if d != nil && d.Mentions(t.policy()) {
			found = append(found, trustingRole{name: r.name, trust: *d})
		}
	}
	return each(found, func(b trustingRole) (trustingRole, error) {
		have, err := c.readRole(ctx, Role{Name: b.name})
		switch {
		case api.IsDenied(err):
			b.unread, b.owners = true, "unknown owner: the caller is denied iam:GetRole"
			return b, nil
		case err != nil || have == nil:
			return b, err
		}
		b.ours, b.owners = OwnedBy(name).Owns(have.tags) || OwnedByKeypost().Owns(have.tags), Owner{}.others(have.tags)
		return b, nil
	})
}

// withdraw plans to remove a provider from the trust policy of a role of ours, by what the policy is then.
func (c *Client) withdraw(b trustingRole, t Trust) (plan.Stage, error) {
	steps := func(trust iampolicy.Document) ([]cloud.Step, error) {
		rest, diff := trust.Without(t.ProviderARN)
		if len(diff) == 0 {
			return nil, nil
		}
		s, err := c.trustStep(b.name, rest, iampolicy.MaxTrustLength, diff)
		return []cloud.Step{s}, err
	}
	planned, err := steps(b.trust)
	return c.updateRole(b.name, planned, func(have *roleState) ([]cloud.Step, error) { return steps(have.trust) }), err
}

// updateRole plans steps for a role. Applying the plan reads the role again; one that is gone needs no steps.
func (c *Client) updateRole(name string, steps []cloud.Step, remaining func(have *roleState) ([]cloud.Step, error)) plan.Stage {
	change := plan.Change{Verb: plan.Update, Thing: roleThing, Name: name}
	return c.API.Stage(change, steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.readRole(ctx, Role{Name: name})
		if err != nil || have == nil {
			return nil, err
		}
		return remaining(have)
	})
}

// trustStep returns the step that puts a role's trust policy.
func (c *Client) trustStep(role string, d iampolicy.Document, limit int, diff []string) (cloud.Step, error) {
	text, err := d.Fit(limit)
	if err != nil {
		return cloud.Step{}, problem(TrustTooLong, "it %w: shorten it, or have the account's quota L-C07B4B0D raised", err)
	}
	in := &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(role), PolicyDocument: aws.String(text)}
	return api.NewStep(c.Client, c.IAM.UpdateAssumeRolePolicy, in, "Trust policy of Role "+role+" updated", diff...), nil
}
