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
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/provision/webidentity"
)

// Deletion describes what to delete of what keypost or ccoctl made under a name. Roles are deleted only with the whole
// installation, and only those that have its tag.
type Deletion struct {
	Name      string
	IssuerURL string // only this issuer's provider, and its statements in the trust policies of roles of ours; empty for all
	Strand    bool   // with IssuerURL: also where a role trusts nobody else; it stays, and nobody may assume it
}

// listed is a role as ListRoles shows it: with its trust policy, without its tags.
type listed struct {
	name  string
	id    string // unique: a role that is made anew under the same name has another
	trust string
}

func (c *Client) listRoles(ctx context.Context) ([]listed, error) {
	pages := iam.NewListRolesPaginator(c.iam, &iam.ListRolesInput{MaxItems: aws.Int32(1000)})
	return all(ctx, c, pages, func(page *iam.ListRolesOutput) (roles []listed) {
		for _, r := range page.Roles {
			roles = append(roles, listed{aws.ToString(r.RoleName), aws.ToString(r.RoleId), aws.ToString(r.AssumeRolePolicyDocument)})
		}
		return roles
	})
}

func (c *Client) roleTags(ctx context.Context, name string) (map[string]string, error) {
	pages := iam.NewListRoleTagsPaginator(c.iam, &iam.ListRoleTagsInput{RoleName: aws.String(name)})
	tags, err := all(ctx, c, pages, func(page *iam.ListRoleTagsOutput) []types.Tag { return page.Tags })
	return tagMap(tags), err
}

// ownedRoles returns the names of a cluster's roles. They begin with the cluster's, so the tags of only a few are read:
// GetRole on every role of an account, as ccoctl does, takes minutes and fails at the first role that denies it.
func (c *Client) ownedRoles(ctx context.Context, name string, roles []listed) (owned, error) {
	var named []string
	for _, r := range roles {
		if strings.HasPrefix(r.name, ccoctl.RoleNamePrefix(name)) {
			named = append(named, r.name)
		}
	}
	return filterOwned(named, OwnedBy(name), func(role string) (map[string]string, error) { return c.roleTags(ctx, role) })
}

// unknown returns an error for things whose tags the caller may not read, with the permission that it needs; nil for none.
func unknown(permission string, things []string) error {
	if len(things) == 0 {
		return nil
	}
	return fmt.Errorf("the caller may not read the tags of %s, so nobody knows whether they are to be deleted; "+
		"allow %s on them. Nothing was changed", strings.Join(things, ", "), permission)
}

// unreadNotes describes what may be somebody else's.
func unreadNotes(thing string, names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, fmt.Sprintf("%s %s was not looked at: the caller may not read its tags", thing, n))
	}
	return out
}

// PlanPrune plans to delete the roles of a cluster that are not in keep. With list it changes nothing, and names them as beyond what
// is wanted; if the caller may not list roles, a note reports that.
func (c *Client) PlanPrune(ctx context.Context, name string, keep []string, list bool) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if list && isDenied(err) {
		return plan.Plan{Notes: []string{"roles that nobody asked for were not looked for: " + err.Error()}}, nil
	}
	if err != nil {
		return plan.Plan{}, err
	}
	roles = slices.DeleteFunc(roles, func(r listed) bool { return slices.Contains(keep, r.name) })
	mine, err := c.ownedRoles(ctx, name, roles)
	p := plan.Plan{Notes: unreadNotes(roleThing, mine.unread)}
	for _, role := range mine.shared {
		p.Notes = append(p.Notes, fmt.Sprintf("role %s belongs to another owner too, and stays", role))
	}
	if !list {
		err = cmp.Or(err, unknown("iam:ListRoleTags", mine.unread))
	}
	if err != nil {
		return plan.Plan{}, err
	}
	if !list {
		stage, err := c.deleteRoles(ctx, roles, mine.ours, OwnedBy(name))
		return plan.Of(p.Notes, stage), err
	}
	for _, role := range mine.ours {
		p.Extra = append(p.Extra, fmt.Sprintf("role %s of %s is there, and nobody asked for it; --prune deletes it", role, name))
	}
	return p, nil
}

// PlanDelete plans to delete what d describes: roles first, then providers. What another owns too loses only the tag and the
// statements of d's installation.
func (c *Client) PlanDelete(ctx context.Context, a Account, d Deletion) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	if d.IssuerURL != "" {
		return c.planDeleteIssuer(ctx, Trust{ProviderARN: a.ProviderARN(d.IssuerURL), Issuer: d.IssuerURL}, d, roles)
	}
	owner := OwnedBy(d.Name)
	mine, err := c.ownedRoles(ctx, d.Name, roles)
	if err = cmp.Or(err, unknown("iam:ListRoleTags", mine.unread)); err != nil {
		return plan.Plan{}, err
	}
	providers, err := c.ownedProviders(ctx, owner)
	if err = cmp.Or(err, unknown("iam:ListOpenIDConnectProviderTags", providers.perhapsOf(mine, roles))); err != nil {
		return plan.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, roles, mine.ours, owner)
	if err != nil {
		return plan.Plan{}, err
	}
	shared := slices.DeleteFunc(slices.Clone(roles), func(r listed) bool { return !slices.Contains(mine.shared, r.name) })
	left, err := each(shared, func(r listed) (plan.Stage, error) { return c.leaveRole(r, owner, providers.ours) })
	if err != nil {
		return plan.Plan{}, err
	}
	last, err := each(providers.ours, func(arn string) (plan.Stage, error) { return c.deleteProvider(ctx, arn, owner) })
	notes := append(unreadNotes(providerThing, providers.unread), leftBehind(roles, slices.Concat(mine.ours, mine.shared), providers.ours)...)
	for _, arn := range providers.shared {
		last = append(last, c.leaveProvider(arn, owner))
	}
	return plan.Of(notes, slices.Concat(stage, slices.Concat(left...)), slices.Concat(last...)), err
}

// perhapsOf returns those of the unread providers that may be an installation's: a role of it trusts them, or nothing else of
// it is there.
func (p owned) perhapsOf(mine owned, roles []listed) []string {
	known := slices.Concat(mine.ours, mine.shared, p.ours, p.shared)
	return slices.DeleteFunc(slices.Clone(p.unread), func(arn string) bool {
		return len(known) > 0 && !slices.ContainsFunc(roles, func(r listed) bool {
			d, err := r.policy(arn)
			return slices.Contains(known, r.name) && (err != nil || d != nil && d.Names(arn))
		})
	})
}

// leaveRole plans to take an owner's statements and then its tag off a role that another owns too. A statement without which
// nobody could assume the role stays.
func (c *Client) leaveRole(r listed, o Owner, providers []string) (plan.Stage, error) {
	steps := func(trust iampolicy.Document) ([]step, error) {
		var steps []step
		var diff []string
		for _, arn := range providers {
			if rest, gone := trust.Without(arn); !rest.Empty() {
				trust, diff = rest, append(diff, gone...)
			}
		}
		if len(diff) > 0 {
			s, err := trustStep(r.name, trust, iampolicy.MaxTrustLength, diff)
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		}
		in := &iam.UntagRoleInput{RoleName: aws.String(r.name), TagKeys: []string{o.key}}
		line := fmt.Sprintf("Tag %s removed from Role %s", o, r.name)
		return append(steps, newStep((*iam.Client).UntagRole, in, line, "- tag "+o.String())), nil
	}
	trust, err := iampolicy.Parse(r.trust)
	if err != nil {
		return nil, fmt.Errorf("trust policy of role %s: %w", r.name, err)
	}
	planned, err := steps(trust)
	return c.updateRole(r.name, planned, func(have *roleState) ([]step, error) {
		if have.id != r.id || !o.Owns(have.tags) {
			return nil, nil
		}
		return steps(have.trust)
	}), err
}

// leaveProvider plans to take an owner's tag off a provider that another owns too.
func (c *Client) leaveProvider(arn string, o Owner) plan.Stage {
	in := &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn), TagKeys: []string{o.key}}
	line := fmt.Sprintf("Tag %s removed from Identity Provider with ARN %s", o, arn)
	s := newStep((*iam.Client).UntagOpenIDConnectProvider, in, line, "- tag "+o.String())
	return c.action(plan.Change{Verb: plan.Update, Thing: providerThing, Name: arn}, []step{s}, func(ctx context.Context) ([]step, error) {
		tags, err := c.providerTags(ctx, arn)
		if err != nil || !o.Owns(tags) {
			return nil, unlessMissing(err)
		}
		return []step{s}, nil
	})
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

// deleteProvider plans to delete a provider.
func (c *Client) deleteProvider(ctx context.Context, arn string, o Owner) (plan.Stage, error) {
	in := &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)}
	s := newDelete((*iam.Client).DeleteOpenIDConnectProvider, in, ccoctl.ProviderDeleted(arn))
	remaining := func(ctx context.Context) ([]step, error) {
		have, err := c.readProvider(ctx, arn)
		if err != nil || have == nil {
			return nil, err
		}
		if !o.zero() && (!o.Owns(have.tags) || o.others(have.tags) != "") {
			return nil, o.notOurs(providerThing+" "+arn, have.tags)
		}
		return []step{s}, nil
	}
	steps, err := remaining(ctx) // what may not be read stops the deletion before it begins
	return c.action(plan.Change{Verb: plan.Delete, Thing: providerThing, Name: arn}, steps, remaining), err
}

// deleteRoles plans to delete those of roles that have one of these names.
func (c *Client) deleteRoles(ctx context.Context, roles []listed, names []string, o Owner) (plan.Stage, error) {
	gone := slices.DeleteFunc(slices.Clone(roles), func(r listed) bool { return !slices.Contains(names, r.name) })
	stages, err := each(gone, func(r listed) (plan.Stage, error) { return c.deleteRole(ctx, r, o) })
	return slices.Concat(stages...), err
}

// deleteRole plans to delete a role whose tags were just read. Applying the plan compares the role with the planned one
// before anything of it is deleted.
func (c *Client) deleteRole(ctx context.Context, r listed, o Owner) (plan.Stage, error) {
	if err := c.checkProfiles(ctx, r.name); err != nil {
		return nil, err
	}
	steps, err := c.removalSteps(ctx, r.name)
	return c.action(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: r.name}, steps, func(ctx context.Context) ([]step, error) {
		steps, err := c.removalSteps(ctx, r.name)
		if err != nil || len(steps) == 0 {
			return nil, err
		}
		return steps, c.checkPlanned(ctx, r, o)
	}), err
}

// checkPlanned returns an error unless r is still the role for which the plan was made, and the owner's: somebody else may
// have tagged it anew, or made another under its name. A role that is gone is no error.
func (c *Client) checkPlanned(ctx context.Context, r listed, o Owner) error {
	have, err := c.readRole(ctx, Role{Name: r.name})
	switch {
	case err != nil || have == nil:
		return err
	case have.id != r.id:
		return remade(have.id, r.id)
	case !o.Owns(have.tags) || o.others(have.tags) != "":
		return o.notOurs(roleThing+" "+r.name, have.tags)
	}
	return nil
}

// remade returns the error for a role that was made anew under its name after the plan was made.
func remade(id, planned string) error {
	return fmt.Errorf("it is another role of the same name by now (ID %s, and the plan is for %s); make the plan again", id, planned)
}

// checkProfiles returns an error for a role in an instance profile: IAM does not delete it, and only its owner knows what
// runs with it. Where the caller may not ask, IAM's own error reports it later.
func (c *Client) checkProfiles(ctx context.Context, role string) error {
	in := &iam.ListInstanceProfilesForRoleInput{RoleName: aws.String(role)}
	out, err := ask(ctx, c, c.iam.ListInstanceProfilesForRole, in)
	if isDenied(err) || isMissing(err) {
		return nil
	}
	if err != nil || len(out.InstanceProfiles) == 0 {
		return err
	}
	profile := aws.ToString(out.InstanceProfiles[0].InstanceProfileName)
	return fmt.Errorf("role %s is in the instance profile %s, and IAM deletes no such role; take it out first: "+
		"%s", role, profile, webidentity.Command("remove-role-from-instance-profile", "--instance-profile-name", profile, "--role-name", role))
}

// removalSteps returns the steps that delete a role's policies and then the role, since IAM deletes no role that has
// policies. A missing role needs no steps.
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
	for _, p := range inline {
		steps = append(steps, deletePolicyStep(name, p))
	}
	for _, arn := range attached {
		steps = append(steps, detachStep(name, arn))
	}
	return append(steps, newDelete((*iam.Client).DeleteRole, &iam.DeleteRoleInput{RoleName: aws.String(name)}, ccoctl.RoleDeleted(name))), nil
}

func deletePolicyStep(role, policy string) step {
	in := &iam.DeleteRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(policy)}
	return newDelete((*iam.Client).DeleteRolePolicy, in, ccoctl.RolePolicyDeleted(role, policy), "- inline policy "+policy)
}

func detachStep(role, arn string) step {
	in := &iam.DetachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)}
	return newDelete((*iam.Client).DetachRolePolicy, in, ccoctl.RolePolicyDetached(role, arn), "- managed policy "+arn)
}

func (c *Client) inlinePolicies(ctx context.Context, name string) ([]string, error) {
	pages := iam.NewListRolePoliciesPaginator(c.iam, &iam.ListRolePoliciesInput{RoleName: aws.String(name)})
	return all(ctx, c, pages, func(page *iam.ListRolePoliciesOutput) []string { return page.PolicyNames })
}

// planDeleteIssuer plans to delete one issuer's statements and its provider. No role is deleted.
func (c *Client) planDeleteIssuer(ctx context.Context, t Trust, d Deletion, roles []listed) (plan.Plan, error) {
	owner := OwnedBy(d.Name)
	provider, err := c.readProvider(ctx, t.ProviderARN)
	if err != nil {
		return plan.Plan{}, err
	}
	var last plan.Stage
	if provider != nil {
		if last, err = c.deleteProvider(ctx, t.ProviderARN, owner); err != nil {
			return plan.Plan{}, err
		}
	}
	trustingRoles, err := c.trustingRoles(ctx, t, d.Name, roles)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes, stranded, unread []string
	var stage plan.Stage
	for _, b := range trustingRoles {
		if b.unread {
			unread = append(unread, b.name)
		}
		if b.trust.TrustsOnly(t.ProviderARN) {
			stranded = append(stranded, b.String())
			notes = append(notes, fmt.Sprintf("role %s stays, and keeps a statement for the deleted provider %s: nobody may assume it", b, t.ProviderARN))
			continue
		}
		actions, more, err := c.withdraw(b, t, func(trust iampolicy.Document) error {
			if trust.TrustsOnly(t.ProviderARN) {
				return fmt.Errorf("role %s trusts nobody but %s now; run it again", b, t.ProviderARN)
			}
			return nil
		})
		if err != nil {
			return plan.Plan{}, err
		}
		stage, notes = append(stage, actions...), append(notes, more...)
	}
	if err := unknown("iam:GetRole", unread); err != nil {
		return plan.Plan{}, err
	}
	if len(stranded) > 0 && provider != nil && !d.Strand {
		return plan.Plan{}, problem(Stranded, "%s would trust nobody without %s, and nobody could assume them any more: %s; nothing was changed",
			text.Count(len(stranded), "role", "roles"), d.IssuerURL, strings.Join(stranded, ", "))
	}
	return plan.Of(notes, stage, last), nil
}

// trustingRole is a role whose trust policy mentions an issuer.
type trustingRole struct {
	name, id string
	trust    iampolicy.Document
	cluster  Owner  // that ours refers to
	ours     bool   // the cluster's, or made by create-role
	adopted  bool   // not ours, and to be treated as ours
	owners   string // all of them, for messages
	unread   bool   // the caller may not read its tags
}

// still returns an error unless have is the role for which the plan was made, and ours or nobody's as it was then.
func (b trustingRole) still(have *roleState) error {
	switch {
	case have.id != b.id:
		return remade(have.id, b.id)
	case b.cluster.Owns(have.tags) || OwnedByKeypost().Owns(have.tags):
		return nil
	case b.ours || b.cluster.others(have.tags) != "":
		return fmt.Errorf("%w; run it again", b.cluster.notOurs(roleThing+" "+b.name, have.tags))
	}
	return nil
}

func (c *Client) trustingRoles(ctx context.Context, t Trust, name string, roles []listed) ([]trustingRole, error) {
	var found []trustingRole
	for _, r := range roles {
		d, err := r.policy(iampolicy.HostPath(t.Issuer))
		if err != nil {
			return nil, err
		}
		if d != nil && d.Mentions(t.policy()) {
			found = append(found, trustingRole{name: r.name, id: r.id, trust: *d, cluster: OwnedBy(name)})
		}
	}
	return each(found, func(b trustingRole) (trustingRole, error) {
		have, err := c.readRole(ctx, Role{Name: b.name})
		switch {
		case isDenied(err):
			b.unread, b.owners = true, "unknown owner: the caller is denied iam:GetRole"
			return b, nil
		case err != nil || have == nil:
			return b, err
		}
		b.ours, b.owners = OwnedBy(name).Owns(have.tags) || OwnedByKeypost().Owns(have.tags), Owner{}.others(have.tags)
		return b, nil
	})
}

// withdraw plans to remove a provider from a role's trust policy, once check finds nothing against the policy of that time.
// It returns an error if no statement would be left, since IAM refuses such a policy.
func (c *Client) withdraw(b trustingRole, t Trust, check func(iampolicy.Document) error) (plan.Stage, []string, error) {
	if !b.ours && !b.adopted {
		return nil, []string{fmt.Sprintf("role %s is not ours: it stays, and keeps a statement for the deleted provider %s", b, t.ProviderARN)}, nil
	}
	var notes []string
	if rest, _ := b.trust.Without(t.ProviderARN); rest.Mentions(t.policy()) {
		notes = append(notes, fmt.Sprintf("role %s keeps a statement that mentions %s and does not name it as a principal", b, t.Issuer))
	}
	steps := func(trust iampolicy.Document) ([]step, error) {
		rest, diff := trust.Without(t.ProviderARN)
		if len(diff) == 0 {
			return nil, nil
		}
		if rest.Empty() {
			return nil, fmt.Errorf("role %s trusts nobody but %s now; run it again", b, t.ProviderARN)
		}
		s, err := trustStep(b.name, rest, iampolicy.MaxTrustLength, diff)
		return []step{s}, cmp.Or(check(trust), err)
	}
	planned, err := steps(b.trust)
	return c.updateRole(b.name, planned, func(have *roleState) ([]step, error) {
		left, err := steps(have.trust)
		if len(left) == 0 {
			return nil, err
		}
		return left, cmp.Or(b.still(have), err)
	}), notes, err
}

// updateRole plans steps for a role. Applying the plan reads the role again; one that is gone needs no steps.
func (c *Client) updateRole(name string, steps []step, remaining func(have *roleState) ([]step, error)) plan.Stage {
	change := plan.Change{Verb: plan.Update, Thing: roleThing, Name: name}
	return c.action(change, steps, func(ctx context.Context) ([]step, error) {
		have, err := c.readRole(ctx, Role{Name: name})
		if err != nil || have == nil {
			return nil, err
		}
		return remaining(have)
	})
}

// trustStep returns the step that puts a role's trust policy. IAM refuses one that has a principal that is gone.
func trustStep(role string, d iampolicy.Document, limit int, diff []string) (step, error) {
	if gone, number := d.Gone(); gone != "" {
		return step{}, fmt.Errorf("statement %d names the principal %s, which is a user or role that was deleted, "+
			"and IAM takes no change of the policy that keeps it: take it out of the statement first", number, gone)
	}
	text, err := d.Fit(limit)
	if err != nil {
		return step{}, problem(TrustTooLong, "it %w: shorten it, or have the account's quota L-C07B4B0D raised", err)
	}
	in := &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(role), PolicyDocument: aws.String(text)}
	return newStep((*iam.Client).UpdateAssumeRolePolicy, in, "Trust policy of Role "+role+" updated", diff...), nil
}
