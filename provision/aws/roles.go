package aws

import (
	"context"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// RolesOptions say which roles to make for a provider that exists.
type RolesOptions struct {
	Options     // with Usual, those ClientIDs count that the provider takes; Store and IssuerURL are only named in the log
	ProviderARN string
	Roles       RequestedRoles
}

// RolesCreated is what [CreateRoles] made.
type RolesCreated struct {
	Preview *plan.Preview // with mode Preview; Secrets is empty then
	Secrets []install.Secret
}

// CreateRoles makes the roles that a release's CredentialsRequests ask for, and the Secrets that name them. Existing roles
// are compared and brought up to date; without Prune nothing is taken away.
func CreateRoles(ctx context.Context, o RolesOptions) (RolesCreated, error) {
	issuerURL, err := api.ProviderURL(o.ProviderARN)
	if err != nil {
		return RolesCreated{}, err
	}
	r := newRun(o.Options)
	set, err := readRoles(o.Options, o.Roles)
	if err != nil {
		r.Lines(set.skipped)
		return RolesCreated{}, err
	}
	trust := o.trust(o.ProviderARN)
	trust.Issuer = issuerURL
	if err := awsiam.Check(awsiam.Provider{}, trust, set.roles); err != nil {
		return RolesCreated{}, err
	}
	if err := r.CheckDir(o.Adopt, issuerURL); err != nil {
		return RolesCreated{}, err
	}
	if o.Mode == install.DryRun {
		r.Lines(set.skipped)
		return RolesCreated{}, r.WriteFiles(r.dryRunFiles(set, trust)...)
	}
	if err := r.identify(ctx); err != nil {
		return RolesCreated{}, err
	}
	r.Lines(set.skipped)
	if err := r.checkProvider(ctx, &trust); err != nil {
		return RolesCreated{}, err
	}
	p, err := r.planRoles(ctx, set, trust)
	if err != nil {
		return RolesCreated{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return RolesCreated{Preview: preview}, err
	}
	files := r.secrets(set)
	var made RolesCreated
	for i, q := range set.requests {
		made.Secrets = append(made.Secrets, r.Secret(q.SecretNamespace, files[i]))
	}
	return made, r.WriteFiles(files...)
}

// RoleOptions say which role to make for a workload of any cluster.
type RoleOptions struct {
	Options                // Name is that of the role, and the Store is only named in the log
	For             string // what asks for the role; for messages
	ServiceAccounts []install.ServiceAccount
	Permissions     []byte // policy to put into the role; nil for none
	PolicyARNs      []string
	Boundary        string
	Prune           bool // take away the permissions that the role has beside these, and the trust in other service accounts of the issuer
}

// RoleCreated is a role for a workload.
type RoleCreated struct {
	Preview *plan.Preview // with mode Preview; ARN is empty then
	ARN     string
}

// CreateRole makes a role that pods of some service accounts may assume. The issuer's provider must exist.
func CreateRole(ctx context.Context, o RoleOptions) (RoleCreated, error) {
	r := newRun(o.Options)
	role := o.role()
	trust := o.trust("")
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil {
		return RoleCreated{}, err
	}
	if err := r.identify(ctx); err != nil {
		return RoleCreated{}, err
	}
	trust.ProviderARN = r.account.ProviderARN(o.IssuerURL)
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil { // now ARNs also against the account
		return RoleCreated{}, err
	}
	if err := r.checkProvider(ctx, &trust); err != nil {
		return RoleCreated{}, err
	}
	p, err := r.client.PlanRoles(ctx, trust, []awsiam.Role{role})
	if err != nil {
		return RoleCreated{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return RoleCreated{Preview: preview}, err
	}
	return RoleCreated{ARN: r.account.RoleARN(o.Name)}, nil
}

func (o RoleOptions) role() awsiam.Role {
	role := awsiam.Role{
		Name: o.Name, For: o.For, Policy: o.Permissions, ManagedPolicies: o.PolicyARNs, Boundary: o.Boundary,
		Owner: awsiam.OwnedByKeypost(), Tags: o.Tags, Adopt: o.Adopt, Tighten: o.Tighten, Prune: o.Prune,
		Exact: len(o.PolicyARNs) > 0 || o.Permissions != nil, // without a policy of either kind, others manage the permissions
	}
	for _, a := range o.ServiceAccounts {
		role.Subjects = append(role.Subjects, a.Subject())
	}
	return role
}
