package install

import (
	"context"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/plan"
)

// RolesOptions say which roles to make for a provider that exists.
type RolesOptions struct {
	Target
	Store  KeyStore // only named in the log
	Report func(Event)
	Mode   Mode

	Name        string // of the installation
	Dir         string // output directory
	ProviderARN string
	IssuerURL   string   // only named in the log; may be empty
	ClientIDs   []string // audiences
	Usual       bool     // nobody asked for these ClientIDs: those of them count that the provider takes
	Ownership

	Roles          RequestedRoles
	MaxTrustLength int
}

// Secret is a manifest that was written.
type Secret struct{ Namespace, File string } // File is its path

// RolesCreated is what [CreateRoles] made.
type RolesCreated struct {
	Preview *plan.Preview // with mode Preview; Secrets is empty then
	Secrets []Secret
}

// CreateRoles makes the roles that a release's CredentialsRequests ask for, and the Secrets that name them. Existing roles
// are compared and brought up to date: what a new release needs is added before anything is taken away.
func CreateRoles(ctx context.Context, o RolesOptions) (RolesCreated, error) {
	issuerURL, err := awsiam.ProviderURL(o.ProviderARN)
	if err != nil {
		return RolesCreated{}, err
	}
	r := newRun(o.Report, o.Store)
	set, err := readRoles(o.Name, o.Roles, o.Ownership)
	if err != nil {
		r.lines(set.skipped)
		return RolesCreated{}, err
	}
	trust := awsiam.Trust{ProviderARN: o.ProviderARN, Issuer: issuerURL, Audiences: o.ClientIDs, Usual: o.Usual, MaxLength: o.MaxTrustLength,
		Port: true} // the provider exists, whatever its URL
	if err := awsiam.Check(awsiam.Provider{}, trust, set.roles); err != nil {
		return RolesCreated{}, err
	}
	if o.Mode == DryRun {
		r.lines(set.skipped)
		return RolesCreated{}, r.writeRoles(o.Dir, set, trust)
	}
	if err := r.identify(ctx, o.Target, o.IssuerURL); err != nil {
		return RolesCreated{}, err
	}
	r.lines(set.skipped)
	there, err := r.existingTrust(ctx, o.ProviderARN)
	if err != nil {
		return RolesCreated{}, err
	}
	if o.Usual {
		trust.Audiences = usualAudiences(o.ClientIDs, there.Audiences)
	} else if err := r.checkRegistered(o.ClientIDs, there); err != nil {
		return RolesCreated{}, err
	}
	p, err := r.planRoles(ctx, set, trust, o.Roles.Prune)
	if err != nil {
		return RolesCreated{}, err
	}
	if preview, err := r.carryOut(ctx, o.Mode, p); err != nil || preview != nil {
		return RolesCreated{Preview: preview}, err
	}
	return r.secretsFor(o.Dir, set)
}

func (r *run) secretsFor(dir string, set roleSet) (RolesCreated, error) {
	files, err := r.writeSecrets(dir, set)
	if err != nil {
		return RolesCreated{}, err
	}
	var done RolesCreated
	for i, q := range set.requests {
		done.Secrets = append(done.Secrets, Secret{Namespace: q.SecretNamespace, File: path(dir, files[i].Name)})
	}
	return done, nil
}

// RoleOptions say which role to make for a workload of any cluster.
type RoleOptions struct {
	Target
	Store  KeyStore // only named in the log
	Report func(Event)
	Mode   Mode // Apply or Preview

	Name            string // of the role
	For             string // what asks for it; for messages
	ServiceAccounts []ServiceAccount
	IssuerURL       string
	Dev             bool // the URL may have a port
	ClientIDs       []string
	Usual           bool   // nobody asked for these ClientIDs
	Policy          []byte // permissions policy; nil for none
	PolicyARNs      []string
	Boundary        string
	Ownership
	MaxTrustLength int
}

// ServiceAccount names a service account of a cluster.
type ServiceAccount struct{ Namespace, Name string }

// RoleCreated is a role for a workload.
type RoleCreated struct {
	Preview *plan.Preview // with mode Preview; ARN is empty then
	ARN     string
}

// CreateRole makes a role that pods of some service accounts may assume. The issuer's provider must exist.
func CreateRole(ctx context.Context, o RoleOptions) (RoleCreated, error) {
	r := newRun(o.Report, o.Store)
	role := o.role()
	trust := awsiam.Trust{Issuer: o.IssuerURL, Audiences: o.ClientIDs, Usual: o.Usual, MaxLength: o.MaxTrustLength, Port: o.Dev}
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil {
		return RoleCreated{}, err
	}
	if err := r.identify(ctx, o.Target, o.IssuerURL); err != nil {
		return RoleCreated{}, err
	}
	trust.ProviderARN = r.account.ProviderARN(o.IssuerURL)
	if err := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role}); err != nil { // now ARNs also against the account
		return RoleCreated{}, err
	}
	there, err := r.existingTrust(ctx, trust.ProviderARN)
	if err != nil {
		return RoleCreated{}, err
	}
	if err := r.checkRegistered(o.ClientIDs, there); err != nil {
		return RoleCreated{}, err
	}
	p, err := r.client.PlanRoles(ctx, trust, []awsiam.Role{role})
	if err != nil {
		return RoleCreated{}, err
	}
	if preview, err := r.carryOut(ctx, o.Mode, p); err != nil || preview != nil {
		return RoleCreated{Preview: preview}, err
	}
	return RoleCreated{ARN: r.account.RoleARN(o.Name)}, nil
}

func (o RoleOptions) role() awsiam.Role {
	role := awsiam.Role{
		Name: o.Name, For: o.For, Policy: o.Policy, ManagedPolicies: o.PolicyARNs, Boundary: o.Boundary,
		Owner: awsiam.OwnedByKeypost(), Tags: o.Tags, Adopt: o.Adopt, Tighten: o.Tighten,
		Exact: len(o.PolicyARNs) > 0 || o.Policy != nil, // without a policy of either kind, others manage the permissions
	}
	for _, a := range o.ServiceAccounts {
		role.Subjects = append(role.Subjects, subject(a.Namespace, a.Name))
	}
	return role
}

// UnknownAccountFiles is a pattern that the dry-run files with [UnknownAccount] match.
func UnknownAccountFiles(dir string) string { return path(dir, ccoctl.RoleFiles) }
