package awsiam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/plan"
)

const roleThing = "IAM role"

// Role is an IAM role as it should be. Empty fields leave the role as it is there, except for the trust statement.
type Role struct {
	Name            string
	For             string // what asks for it, for messages: "CredentialsRequest NAMESPACE/NAME (FILE)"
	Description     string
	Subjects        []string // system:serviceaccount:NAMESPACE:NAME
	Policy          []byte   // the permissions policy, a JSON document, kept inline under the role's name; nil for none
	ManagedPolicies []string // ARNs to attach
	Boundary        string   // the permissions boundary's ARN
	Owner           Owner
	Tags            map[string]string // beside the owner's
	Adopt           bool              // take over a role without the owner's tag

	Exact bool // Policy and ManagedPolicies are all that it should have
	Prune bool // what is not asked for goes: permissions, trust and, with Exact, other policies. Else it stays, and is reported in Plan.Extra
}

// Trust is the issuer that a role trusts, for statements in its trust policy.
type Trust struct {
	ProviderARN string
	Issuer      string // URL
	Audiences   []string
	Usual       bool // these Audiences are defaults: a role that asks for others keeps them
	MaxLength   int  // characters a trust policy may have; zero for 2,048, more once the account's quota L-C07B4B0D is raised
}

// policy returns the part of t that a trust policy contains.
func (t Trust) policy() iampolicy.Trust {
	return iampolicy.Trust{ProviderARN: t.ProviderARN, Issuer: t.Issuer, Audiences: t.Audiences}
}

func (t Trust) limit() int { return cmp.Or(t.MaxLength, iampolicy.TrustLength) }

// asJSON marshals a value made of strings, lists and maps, which cannot fail.
func asJSON(v any) []byte {
	out, _ := json.Marshal(v)
	return out
}

// roleState is a role as IAM shows it.
type roleState struct {
	arn, boundary string
	tags          map[string]string
	trust         iampolicy.Document
	policy        *iampolicy.Document // the inline one under the role's name
	inline        []string            // names of the inline policies; read only for an exact role
	attached      []string            // read only for an exact role, or when managed policies are asked for
}

// readRole returns nil for a role that is not there.
func (c *Client) readRole(ctx context.Context, r Role) (*roleState, error) {
	out, err := api.Ask(ctx, c.Client, c.IAM.GetRole, &iam.GetRoleInput{RoleName: aws.String(r.Name)})
	if api.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read role %s: %w", r.Name, err)
	}
	have := &roleState{arn: aws.ToString(out.Role.Arn), tags: tagMap(out.Role.Tags)}
	if b := out.Role.PermissionsBoundary; b != nil {
		have.boundary = aws.ToString(b.PermissionsBoundaryArn)
	}
	if have.trust, err = iampolicy.Parse(aws.ToString(out.Role.AssumeRolePolicyDocument)); err != nil {
		return nil, fmt.Errorf("trust policy of role %s: %w", r.Name, err)
	}
	return have, c.readPolicies(ctx, r, have)
}

// RoleTrust returns the ARN and the trust policy of a role; no policy for one that is not there.
func (c *Client) RoleTrust(ctx context.Context, name string) (arn string, trust *iampolicy.Document, err error) {
	have, err := c.readRole(ctx, Role{Name: name})
	if err != nil || have == nil {
		return "", nil, err
	}
	return have.arn, &have.trust, nil
}

// readPolicies reads the policies of a role. Those of a role that has gone meanwhile are none.
func (c *Client) readPolicies(ctx context.Context, r Role, have *roleState) (err error) {
	if r.Policy != nil {
		if have.policy, err = c.readPolicy(ctx, r.Name); err != nil {
			return err
		}
	}
	if r.Exact {
		if have.inline, err = c.inlinePolicies(ctx, r.Name); unlessMissing(err) != nil {
			return err
		}
	}
	if r.Exact || len(r.ManagedPolicies) > 0 {
		have.attached, err = c.attached(ctx, r.Name)
	}
	return unlessMissing(err)
}

func unlessMissing(err error) error {
	if api.IsMissing(err) {
		return nil
	}
	return err
}

func (c *Client) readPolicy(ctx context.Context, name string) (*iampolicy.Document, error) {
	out, err := api.Ask(ctx, c.Client, c.IAM.GetRolePolicy, &iam.GetRolePolicyInput{RoleName: aws.String(name), PolicyName: aws.String(name)})
	if api.IsMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := iampolicy.Parse(aws.ToString(out.PolicyDocument))
	if err != nil {
		return nil, fmt.Errorf("permissions policy of role %s: %w", name, err)
	}
	return &d, nil
}

func (c *Client) attached(ctx context.Context, name string) ([]string, error) {
	pages := iam.NewListAttachedRolePoliciesPaginator(c.IAM, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String(name)})
	return api.All(ctx, c.Client, pages, func(page *iam.ListAttachedRolePoliciesOutput) (arns []string) {
		for _, p := range page.AttachedPolicies {
			arns = append(arns, aws.ToString(p.PolicyArn))
		}
		return arns
	})
}

// PlanRoles plans to make or update these roles. It makes at most two calls for a role that is as it should be, and two
// more for an exact one. The warnings name the permissions and the subjects that roles lose.
func (c *Client) PlanRoles(ctx context.Context, t Trust, roles []Role) (plan.Plan, error) {
	var all plan.Plan
	plans, err := each(roles, func(r Role) (plan.Plan, error) { return c.planRole(ctx, t, r) })
	for _, p := range plans {
		all = all.Beside(p)
	}
	return all, err
}

func (c *Client) planRole(ctx context.Context, t Trust, r Role) (plan.Plan, error) {
	have, err := c.readRole(ctx, r)
	if err != nil {
		return plan.Plan{}, err
	}
	a, _, _ := api.SplitARN(t.ProviderARN)
	return cloud.Thing[*roleState]{
		Kind: roleThing, Name: r.Name, Missing: have == nil, Found: fmt.Sprintf("Existing role %s found", a.RoleARN(r.Name)),
		Read:   func(ctx context.Context) (*roleState, error) { return c.readRole(ctx, r) },
		Decide: func(have *roleState) (cloud.Decision, error) { return c.decideRole(t, r, have) },
	}.Plan(c.API, have)
}

// decision is a decision about a role.
type decision struct {
	*Client
	cloud.Decision
}

// decideRole returns the steps from have to r, a warning for each permission and each subject that goes, and what stays beyond what is
// wanted. The error reports another owner, or a policy that does not fit.
func (c *Client) decideRole(t Trust, r Role, have *roleState) (cloud.Decision, error) {
	if have == nil {
		return c.createRole(t, r)
	}
	if err := r.Owner.mayTake(roleThing+" "+r.Name, have.tags, r.Adopt); err != nil {
		return cloud.Decision{}, err
	}
	a, _, ok := api.SplitARN(t.ProviderARN)
	if ok && have.arn != a.RoleARN(r.Name) {
		return cloud.Decision{}, fmt.Errorf("%s %s has the ARN %s where the cluster would be given %s: "+
			"keypost's roles have no path and exactly this name", roleThing, r.Name, have.arn, a.RoleARN(r.Name))
	}
	d := decision{Client: c}
	if have.boundary != "" && r.Boundary == "" { // taking it away would give the role more than it has
		d.Notes = append(d.Notes, fmt.Sprintf("role %s has the permissions boundary %s, which nobody asked for and which stays", r.Name,
			have.boundary))
	}
	d.attribute(r, have)
	if err := d.addTrust(t, r, have); err != nil {
		return cloud.Decision{}, fmt.Errorf("trust policy of role %s: %w", r.Name, err)
	}
	if err := d.addPolicy(r, have); err != nil {
		return cloud.Decision{}, fmt.Errorf("permissions policy of role %s: %w", r.Name, err)
	}
	d.attach(r, have.attached)
	d.addExtra(r, have)
	return d.Decision, nil
}

// addExtra adds to extra the policies that an exact role should not have. With Prune it plans to remove them instead.
func (d *decision) addExtra(r Role, have *roleState) {
	if !r.Exact {
		return
	}
	beyond := func(kind string, names []string, removal func(role, name string) cloud.Step) {
		for _, name := range names {
			if r.Prune {
				d.Steps = append(d.Steps, removal(r.Name, name))
				continue
			}
			d.Extra = append(d.Extra, fmt.Sprintf("role %s has the %s %s, which nobody asked for; --prune takes it away", r.Name, kind, name))
		}
	}
	beyond("inline policy", slices.DeleteFunc(have.inline, func(p string) bool { return p == r.Name && r.Policy != nil }), d.deletePolicyStep)
	beyond("managed policy", minus(have.attached, r.ManagedPolicies), d.detachStep)
}

func (c *Client) createRole(t Trust, r Role) (cloud.Decision, error) {
	a, _, _ := api.SplitARN(t.ProviderARN)
	trust, err := t.policy().Document(r.Subjects).Fit(t.limit())
	if err != nil {
		return cloud.Decision{}, problem(TrustTooLong, "trust policy of role %s for %d service accounts %w: divide them among several roles", r.Name, len(r.Subjects), err)
	}
	in := &iam.CreateRoleInput{RoleName: aws.String(r.Name), AssumeRolePolicyDocument: aws.String(trust), Tags: r.Owner.tags(r.Tags)}
	var diff []string
	if r.Description != "" {
		in.Description = aws.String(r.Description)
	}
	if r.Boundary != "" {
		in.PermissionsBoundary = aws.String(r.Boundary)
		diff = append(diff, "+ permissions boundary "+r.Boundary)
	}
	_, tags := tagDifference(nil, in.Tags)
	_, lines := iampolicy.Document{}.With(t.policy(), r.Subjects)
	s := api.NewStep(c.Client, c.IAM.CreateRole, in, fmt.Sprintf("Role %s created", a.RoleARN(r.Name)), slices.Concat(diff, tags, lines)...)
	d := decision{Client: c}
	d.Steps = []cloud.Step{api.Needing(s, r.Boundary)}
	if err := d.addPolicy(r, &roleState{}); err != nil {
		return cloud.Decision{}, fmt.Errorf("permissions policy of role %s: %w", r.Name, err)
	}
	d.attach(r, nil)
	return d.Decision, nil
}

// attribute adds the steps for tags and boundary. The tags come first: if the run stops after them,
// the next one knows the role as the owner's.
func (d *decision) attribute(r Role, have *roleState) {
	if missing, diff := tagDifference(have.tags, r.Owner.tags(r.Tags)); len(missing) > 0 {
		d.Steps = append(d.Steps, d.tagRoleStep(r.Name, missing, diff))
	}
	if r.Boundary != "" && r.Boundary != have.boundary {
		s := api.NewStep(d.Client.Client, d.IAM.PutRolePermissionsBoundary,
			&iam.PutRolePermissionsBoundaryInput{RoleName: aws.String(r.Name), PermissionsBoundary: aws.String(r.Boundary)},
			fmt.Sprintf("Permissions boundary of Role %s set to %s", r.Name, r.Boundary), "+ permissions boundary "+r.Boundary)
		if have.boundary != "" {
			s.Diff = append([]string{"- permissions boundary " + have.boundary}, s.Diff...)
		}
		d.Steps = append(d.Steps, api.Needing(s, r.Boundary))
	}
}

func (c *Client) tagRoleStep(role string, tags []types.Tag, diff []string) cloud.Step {
	return api.NewStep(c.Client, c.IAM.TagRole, &iam.TagRoleInput{RoleName: aws.String(role), Tags: tags},
		fmt.Sprintf("Role %s tagged %s", role, tagLine(tags)), diff...)
}

func (d *decision) addTrust(t Trust, r Role, have *roleState) error {
	a, _, _ := api.SplitARN(t.ProviderARN)
	issuers, extra := have.trust.Others(t.ProviderARN, a.ProviderARN(""))
	for _, other := range issuers {
		d.Notes = append(d.Notes, fmt.Sprintf("role %s has a statement for %s too, which stays", r.Name, other))
	}
	for _, line := range extra {
		d.Extra = append(d.Extra, fmt.Sprintf("role %s has a statement in its trust policy that nobody asked for, and that stays: %s", r.Name, line))
	}
	t.Audiences = d.audiences(t, r, have.trust.Audiences(t.policy()))
	var want iampolicy.Document
	var diff []string
	if r.Prune {
		for _, s := range minus(have.trust.Subjects(t.policy()), r.Subjects) {
			d.Warnings = append(d.Warnings, fmt.Sprintf("role %s no longer trusts %s", r.Name, s))
		}
		want, diff = have.trust.With(t.policy(), r.Subjects)
	} else {
		want, diff, extra = have.trust.Including(t.policy(), r.Subjects)
		for _, s := range minus(have.trust.Subjects(t.policy()), r.Subjects) {
			d.Extra = append(d.Extra, fmt.Sprintf("role %s trusts %s too, which nobody asked for; --prune takes it away", r.Name, s))
		}
		for _, line := range extra {
			d.Extra = append(d.Extra, fmt.Sprintf("role %s has another statement for the provider in its trust policy; --prune takes it away: %s",
				r.Name, line))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	s, err := d.trustStep(r.Name, want, t.limit(), diff)
	d.Steps = append(d.Steps, s)
	return err
}

// audiences returns the audiences for the statement, and adds lines about those that it loses or keeps.
func (d *decision) audiences(t Trust, r Role, has []string) []string {
	lost, added := minus(has, t.Audiences), minus(t.Audiences, has)
	switch {
	case len(has) == 0 || len(lost)+len(added) == 0:
		return t.Audiences
	case t.Usual:
		d.Notes = append(d.Notes, fmt.Sprintf("role %s takes tokens for the audience %s; that stays, unless others are asked for",
			r.Name, strings.Join(has, ", ")))
		return has
	}
	for _, a := range lost {
		if r.Prune {
			d.Warnings = append(d.Warnings, fmt.Sprintf("role %s takes no tokens for the audience %s any more", r.Name, a))
			continue
		}
		d.Extra = append(d.Extra, fmt.Sprintf("role %s takes tokens for the audience %s too, which nobody asked for; --prune takes it away", r.Name, a))
	}
	return t.Audiences
}

// addPolicy plans one call that puts the policy: with Prune as it is wanted, else with what the role has beside that.
func (d *decision) addPolicy(r Role, have *roleState) error {
	if r.Policy == nil {
		return nil
	}
	want, err := iampolicy.Parse(string(r.Policy))
	if err != nil {
		return err
	}
	var was iampolicy.Document
	if have.policy != nil {
		was = *have.policy
	}
	compare := iampolicy.Extend
	if r.Prune {
		compare = iampolicy.Replace
	}
	ch, err := compare(was, want)
	if err != nil {
		return problem(NeedsPrune, "%w", err)
	}
	for _, g := range ch.Kept {
		d.Extra = append(d.Extra, fmt.Sprintf("role %s keeps a permission that nobody asked for; --prune takes it away: %s", r.Name, g))
	}
	if r.Prune {
		for _, g := range ch.Lost {
			d.Warnings = append(d.Warnings, fmt.Sprintf("role %s loses a permission: %s", r.Name, g))
		}
	}
	if len(ch.Diff) > 0 {
		in := &iam.PutRolePolicyInput{RoleName: aws.String(r.Name), PolicyName: aws.String(r.Name), PolicyDocument: aws.String(ch.Text)}
		d.Steps = append(d.Steps, api.NewStep(d.Client.Client, d.IAM.PutRolePolicy, in, "Updated Role policy for Role "+r.Name, ch.Diff...))
	}
	return nil
}

func (d *decision) attach(r Role, attached []string) {
	for _, arn := range minus(r.ManagedPolicies, attached) {
		s := api.NewStep(d.Client.Client, d.IAM.AttachRolePolicy, &iam.AttachRolePolicyInput{RoleName: aws.String(r.Name), PolicyArn: aws.String(arn)},
			fmt.Sprintf("Policy %s attached to IAM Role %s", arn, r.Name), "+ managed policy "+arn)
		d.Steps = append(d.Steps, api.Needing(s, arn))
	}
}
