package awsiam

import (
	"context"
	"errors"
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

// StrandedError reports roles that trust nobody but the issuer that is to be deleted.
type StrandedError struct {
	IssuerURL string
	Roles     []string
}

func (e *StrandedError) Error() string {
	verb, them := "trust", "them"
	if len(e.Roles) == 1 {
		verb, them = "trusts", "it"
	}
	return fmt.Sprintf("%s %s nobody but %s, so that nobody could assume %s any more: %s; nothing was changed",
		text.Count(len(e.Roles), "role", "roles"), verb, e.IssuerURL, them, strings.Join(e.Roles, ", "))
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
// GetRole on every role of an account, as ccoctl does, takes minutes and fails at the first role that denies it. A role
// whose tags may not be read is left alone, and noted.
func (c *Client) ownedRoles(ctx context.Context, name string, roles []listed) (owned, notes []string, err error) {
	var named []string
	for _, r := range roles {
		if strings.HasPrefix(r.name, ccoctl.RoleNamePrefix(name)) {
			named = append(named, r.name)
		}
	}
	owned, unread, err := filterOwned(named, OwnedBy(name), func(role string) (map[string]string, error) {
		tags, err := c.roleTags(ctx, role)
		if OwnedByKeypost().Owns(tags) {
			return nil, err
		}
		return tags, err
	})
	return owned, unreadNotes(roleThing, unread), err
}

// PlanPrune plans to delete the roles of a cluster that are not in keep.
func (c *Client) PlanPrune(ctx context.Context, name string, keep []string) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	owned, notes, err := c.ownedRoles(ctx, name, roles)
	if err != nil {
		return plan.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, roles, minus(owned, keep), OwnedBy(name))
	return plan.Of(notes, stage), err
}

// ListSurplus returns a plan that changes nothing, and that has what PlanPrune would delete as beyond what is wanted. If the
// caller may not list roles, a note reports that.
func (c *Client) ListSurplus(ctx context.Context, name string, keep []string) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if isDenied(err) {
		return plan.Plan{Notes: []string{"roles that nobody asked for were not looked for: " + err.Error()}}, nil
	}
	if err != nil {
		return plan.Plan{}, err
	}
	owned, notes, err := c.ownedRoles(ctx, name, roles)
	p := plan.Plan{Notes: notes}
	for _, role := range minus(owned, keep) {
		p.Extra = append(p.Extra, fmt.Sprintf("role %s of %s is there, and nobody asked for it; --prune deletes it", role, name))
	}
	return p, err
}

// PlanDelete plans to delete what d describes: roles first, then providers.
func (c *Client) PlanDelete(ctx context.Context, a Account, d Deletion) (plan.Plan, error) {
	roles, err := c.listRoles(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	if d.IssuerURL != "" {
		return c.planDeleteIssuer(ctx, Trust{ProviderARN: a.ProviderARN(d.IssuerURL), Issuer: d.IssuerURL}, d, roles)
	}
	owned, notes, err := c.ownedRoles(ctx, d.Name, roles)
	if err != nil {
		return plan.Plan{}, err
	}
	providers, unread, err := c.ownedProviders(ctx, OwnedBy(d.Name))
	if err != nil {
		return plan.Plan{}, err
	}
	stage, err := c.deleteRoles(ctx, roles, owned, OwnedBy(d.Name))
	if err != nil {
		return plan.Plan{}, err
	}
	var last plan.Stage
	for _, arn := range providers {
		last = append(last, c.deleteProvider(arn, OwnedBy(d.Name), nil)...)
	}
	notes = slices.Concat(notes, unreadNotes(providerThing, unread), leftBehind(roles, owned, providers))
	return plan.Of(notes, stage, last), nil
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

// deleteProvider plans to delete a provider, once check finds nothing against it; nil checks nothing.
func (c *Client) deleteProvider(arn string, o Owner, check func(context.Context) error) plan.Stage {
	in := &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(arn)}
	s := newDelete((*iam.Client).DeleteOpenIDConnectProvider, in, ccoctl.ProviderDeleted(arn))
	if check != nil {
		s = s.after(check)
	}
	change := plan.Change{Verb: plan.Delete, Thing: providerThing, Name: arn}
	return c.action(change, []step{s}, func(ctx context.Context) ([]step, error) {
		have, err := c.readProvider(ctx, arn)
		if err != nil || have == nil {
			return nil, err
		}
		if !o.zero() && !o.Owns(have.tags) {
			return nil, notOurs(providerThing+" "+arn, o, have.tags, notByUs)
		}
		return []step{s}, nil
	})
}

// deleteRoles plans to delete those of roles that have one of these names.
func (c *Client) deleteRoles(ctx context.Context, roles []listed, names []string, o Owner) (plan.Stage, error) {
	gone := slices.DeleteFunc(slices.Clone(roles), func(r listed) bool { return !slices.Contains(names, r.name) })
	stages, err := each(gone, func(r listed) (plan.Stage, error) { return c.deleteRole(ctx, r, o) })
	return slices.Concat(stages...), err
}

// deleteRole plans to delete a role whose tags were just read. Applying the plan compares the role with the planned one
// before its policies are deleted, and again before the role is.
func (c *Client) deleteRole(ctx context.Context, r listed, o Owner) (plan.Stage, error) {
	if err := c.checkProfiles(ctx, r.name); err != nil {
		return nil, err
	}
	steps, err := c.removalSteps(ctx, r, o)
	return c.action(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: r.name}, steps, func(ctx context.Context) ([]step, error) {
		steps, err := c.removalSteps(ctx, r, o)
		if err != nil || len(steps) == 0 {
			return nil, err
		}
		return steps, c.checkPlanned(ctx, r, o)
	}), err
}

// checkPlanned returns an error unless r is still the role for which the plan was made, and the owner's: somebody else may
// have tagged it anew, or made another under its name. A role that is gone is no error.
func (c *Client) checkPlanned(ctx context.Context, r listed, o Owner) error {
	out, err := ask(ctx, c, c.iam.GetRole, &iam.GetRoleInput{RoleName: aws.String(r.name)})
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	tags := tagMap(out.Role.Tags)
	switch id := aws.ToString(out.Role.RoleId); {
	case id != r.id:
		return remade(id, r.id)
	case OwnedByKeypost().Owns(tags):
		return fmt.Errorf("it bears the tag %s by now and is never deleted; make the plan again", OwnedByKeypost())
	case !o.Owns(tags):
		return notOurs(roleThing+" "+r.name, o, tags, notByUs)
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
func (c *Client) removalSteps(ctx context.Context, r listed, o Owner) ([]step, error) {
	name := r.name
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
	last := newDelete((*iam.Client).DeleteRole, &iam.DeleteRoleInput{RoleName: aws.String(name)}, ccoctl.RoleDeleted(name))
	return append(steps, last.after(func(ctx context.Context) error { return c.checkPlanned(ctx, r, o) })), nil
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
		if !owner.Owns(provider.tags) {
			return plan.Plan{}, notOurs(providerThing+" "+t.ProviderARN, owner, provider.tags, notByUs)
		}
		last = c.deleteProvider(t.ProviderARN, owner, func(ctx context.Context) error { return c.checkStranded(ctx, t, d) })
	}
	trustingRoles, err := c.trustingRoles(ctx, t, d.Name, roles)
	if err != nil {
		return plan.Plan{}, err
	}
	var notes, stranded []string
	var stage plan.Stage
	for _, b := range trustingRoles {
		if b.trust.TrustsOnly(t.ProviderARN) {
			stranded = append(stranded, b.String())
			notes = append(notes, fmt.Sprintf("role %s stays, and keeps a statement for the deleted provider %s: nobody may assume it", b, t.ProviderARN))
			continue
		}
		actions, more, err := c.withdraw(b, t, func(_ context.Context, trust iampolicy.Document) error {
			if trust.TrustsOnly(t.ProviderARN) {
				return errNobodyElse
			}
			return nil
		})
		if err != nil {
			return plan.Plan{}, err
		}
		stage, notes = append(stage, actions...), append(notes, more...)
	}
	if len(stranded) > 0 && provider != nil && !d.Strand {
		return plan.Plan{}, &StrandedError{d.IssuerURL, stranded}
	}
	return plan.Of(notes, stage, last), nil
}

// checkStranded returns an error if a role trusts nobody but t by now. With d.Strand they may.
func (c *Client) checkStranded(ctx context.Context, t Trust, d Deletion) error {
	if d.Strand {
		return nil
	}
	roles, err := c.listRoles(ctx)
	if err != nil {
		return err
	}
	var stranded []string
	for _, r := range roles {
		trust, err := r.policy(iampolicy.HostPath(t.Issuer))
		if err != nil {
			return err
		}
		if trust != nil && trust.TrustsOnly(t.ProviderARN) {
			stranded = append(stranded, r.name)
		}
	}
	if len(stranded) > 0 {
		return fmt.Errorf("since the plan was made, there are roles that trust nobody but %s and that nobody could assume any more: %s; "+
			"the provider stays; make the plan again", t.Issuer, strings.Join(stranded, ", "))
	}
	return nil
}

// trustingRole is a role whose trust policy mentions an issuer.
type trustingRole struct {
	name, id string
	trust    iampolicy.Document
	cluster  Owner  // that ours refers to
	ours     bool   // the cluster's, or made by create-role
	adopted  bool   // not ours, and to be treated as ours
	owners   string // other owners; for messages
	unread   bool   // the caller may not read its tags
}

// still returns an error unless have is the role for which the plan was made, and either ours or of the same owners as then.
func (b trustingRole) still(have *roleState) error {
	switch {
	case have.id != b.id:
		return remade(have.id, b.id)
	case b.cluster.Owns(have.tags) || OwnedByKeypost().Owns(have.tags):
		return nil
	case b.ours || !b.unread && otherOwners(have.tags) != b.owners:
		return notOurs(roleThing+" "+b.name, b.cluster, have.tags, planAnew)
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
		tags, err := c.roleTags(ctx, b.name)
		switch {
		case isDenied(err):
			b.unread, b.owners = true, "unknown owner: the caller may not read its tags"
			return b, nil
		case isMissing(err):
			return b, nil
		}
		b.ours, b.owners = OwnedBy(name).Owns(tags) || OwnedByKeypost().Owns(tags), otherOwners(tags)
		return b, err
	})
}

var errNobodyElse = errors.New("its trust policy has changed meanwhile and names nobody else now; make the plan again")

// withdraw plans to remove a provider from a role's trust policy, once check finds nothing against the policy of that time.
// It returns an error if no statement would be left, since IAM refuses such a policy.
func (c *Client) withdraw(b trustingRole, t Trust, check func(context.Context, iampolicy.Document) error) (plan.Stage, []string, error) {
	if !b.ours && !b.adopted {
		return nil, []string{fmt.Sprintf("role %s is not ours: it stays, and keeps a statement for the deleted provider %s", b, t.ProviderARN)}, nil
	}
	rest, diff := b.trust.Without(t.ProviderARN)
	var notes []string
	if rest.Mentions(t.policy()) {
		notes = append(notes, fmt.Sprintf("role %s keeps a statement that mentions %s and does not name it as a principal", b, t.Issuer))
	}
	if len(diff) == 0 {
		return nil, notes, nil
	}
	if rest.Empty() {
		return nil, nil, fmt.Errorf("role %s trusts nobody but %s", b, t.ProviderARN)
	}
	return c.updateRole(b.name, []step{trustStep(b.name, rest.String(), diff)}, func(have *roleState) ([]step, error) {
		rest, diff := have.trust.Without(t.ProviderARN)
		if len(diff) == 0 {
			return nil, nil
		}
		if rest.Empty() {
			return nil, errNobodyElse
		}
		s := trustStep(b.name, rest.String(), diff)
		return []step{s.after(func(ctx context.Context) error { return check(ctx, have.trust) })}, b.still(have)
	}), notes, nil
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

func trustStep(role, text string, diff []string) step {
	in := &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(role), PolicyDocument: aws.String(text)}
	return newStep((*iam.Client).UpdateAssumeRolePolicy, in, "Trust policy of Role "+role+" updated", diff...)
}
