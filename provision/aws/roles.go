package aws

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// RolesOptions say which roles to make for a provider that exists.
type RolesOptions struct {
	Options     // with Usual, those ClientIDs count that the provider takes; Store and IssuerURL are only named in the log
	ProviderARN string
	Roles       RequestedRoles
}

// CreateRoles makes the roles that a release's CredentialsRequests ask for, and the Secrets that name them. Existing roles
// are compared and brought up to date; without Prune nothing is taken away.
func CreateRoles(ctx context.Context, o RolesOptions) (install.Identities, error) {
	issuerURL, err := api.ProviderURL(o.ProviderARN)
	if err != nil {
		return install.Identities{}, err
	}
	c, err := newCreation(o.Options, &o.Roles)
	if err != nil {
		return install.Identities{}, err
	}
	c.trust = o.trust(o.ProviderARN)
	c.trust.Issuer = issuerURL
	return c.CreateIdentities(ctx, install.CreateOptions{Notes: c.roles.skipped, Parallel: awsiam.Parallel}, c, issuerURL)
}

// RoleOptions say which role to make for a workload of any cluster.
type RoleOptions struct {
	Options                // Name is that of the role, and the Store is only named in the log
	For             string // what asks for the role; for messages
	ServiceAccounts []install.ServiceAccount
	Permissions     []byte // policy to put into the role; nil for none
	PolicyARNs      []string
	Boundary        string
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
		Owner: awsiam.OwnedByKeypost(), Tags: o.Tags, Adopt: o.Adopt, Prune: o.Prune,
		Exact: len(o.PolicyARNs) > 0 || o.Permissions != nil, // without a policy of either kind, others manage the permissions
	}
	for _, a := range o.ServiceAccounts {
		role.Subjects = append(role.Subjects, a.Subject())
	}
	return role
}

// RequestedRoles are the roles that a release's CredentialsRequests ask for.
type RequestedRoles struct {
	Dir         string // with the CredentialsRequests
	TechPreview bool   // also those of tech preview features
	Boundary    string // ARN of the policy that bounds every role's permissions
}

// roleSet is what a directory of CredentialsRequests asks for.
type roleSet struct {
	name     string // the installation's
	requests []credrequest.Request
	skipped  []string
	roles    []awsiam.Role // of the requests that do not bring a role of their own, in their order
}

// readRoles reads the CredentialsRequests, all of them before anything is done about one.
func readRoles(o Options, q RequestedRoles) (roleSet, error) {
	requests, skipped, err := credrequest.ReadDir(credrequest.AWS, q.Dir, q.TechPreview)
	if err != nil {
		return roleSet{}, fmt.Errorf("read CredentialsRequests: %w", err)
	}
	set := roleSet{name: o.Name, requests: requests, skipped: skipped}
	for _, request := range requests {
		if request.HasIdentity() {
			continue
		}
		role, err := requestedRole(o.Name, request)
		if err != nil {
			return roleSet{}, err
		}
		role.Boundary, role.Tags, role.Adopt, role.Prune = q.Boundary, o.Tags, o.Adopt, o.Prune
		set.roles = append(set.roles, role)
	}
	if len(requests) == 0 {
		return set, install.Refuse(install.NoRequests, "%s has no CredentialsRequest for AWS in any file named *.yaml or *.yml (%s left out)", q.Dir,
			text.Count(len(skipped), "thing was", "things were"))
	}
	return set, nil
}

// requestedRole returns ccoctl's role for a CredentialsRequest. Its service accounts are in the namespace of its Secret.
func requestedRole(name string, q credrequest.Request) (awsiam.Role, error) {
	policy, err := credrequest.Policy(q.AWS.Statements)
	if err != nil {
		return awsiam.Role{}, fmt.Errorf("%s: permissions policy: %w", q.File, err)
	}
	role := awsiam.Role{
		Name:        ccoctl.RoleName(name, q.SecretNamespace, q.SecretName),
		For:         fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File),
		Description: fmt.Sprintf("OpenShift role for %s/%s", q.SecretNamespace, q.SecretName),
		Policy:      policy,
		Owner:       awsiam.OwnedBy(name),
		Exact:       true,
	}
	for _, sa := range q.ServiceAccounts {
		role.Subjects = append(role.Subjects, install.Subject(q.SecretNamespace, sa))
	}
	return role, nil
}

func (r *run) planRoles(ctx context.Context, set roleSet, trust awsiam.Trust) (plan.Plan, error) {
	p, err := r.client.PlanRoles(ctx, trust, set.roles)
	if err != nil {
		return p, err
	}
	var keep []string
	for _, role := range set.roles {
		keep = append(keep, role.Name)
	}
	for _, q := range set.requests { // a role of ours may be one that a request names as its own
		if q.HasIdentity() {
			keep = append(keep, path.Base(q.AWS.RoleARN))
		}
	}
	surplus, err := r.client.PlanPrune(ctx, set.name, keep, !r.o.Prune)
	return p.Then(surplus), err
}

// checkProvider reads the provider that roles are to trust. Of the usual audiences, the roles get those that it takes, which are those
// that create-all wrote beside it, or all of its own if it was made for others. Of audiences that somebody asked for, it must take one,
// since AWS refuses every token for another; the rest are warned of.
func (r *run) checkProvider(ctx context.Context, trust *awsiam.Trust) error {
	if !strings.HasPrefix(trust.ProviderARN, r.account.ProviderARN("")) {
		return install.Refuse(install.ForeignProvider, "the provider %s belongs to another account or partition than the credentials, "+
			"which are for account %s (%s); roles trust a provider of their own account only", trust.ProviderARN, r.account.ID, r.account.Partition)
	}
	there, err := r.client.Provider(ctx, trust.ProviderARN)
	if err == nil && there == nil {
		err = fmt.Errorf("there is no %s", trust.ProviderARN)
	}
	if err != nil {
		return &install.Error{Problem: install.ProviderUnread, Provider: trust.ProviderARN, Err: fmt.Errorf("failed to get IAM Identity Provider: %w", err)}
	}
	taken := func(a string) bool { return slices.Contains(there.ClientIDs, a) }
	unknown := slices.DeleteFunc(slices.Clone(trust.Audiences), taken)
	switch known := len(trust.Audiences) - len(unknown); {
	case len(unknown) == 0:
	case r.o.Usual && known == 0:
		trust.Audiences = there.ClientIDs
	case r.o.Usual:
		trust.Audiences = slices.DeleteFunc(slices.Clone(trust.Audiences), func(a string) bool { return !taken(a) })
	default:
		refused := fmt.Errorf("%s takes no tokens for the audience %s (it takes %s), so that AWS refuses them whatever the role trusts",
			trust.ProviderARN, strings.Join(unknown, ", "), strings.Join(there.ClientIDs, ", "))
		if known == 0 {
			return &install.Error{Problem: install.UnknownAudience, Provider: trust.ProviderARN, Audience: unknown[0], Err: refused}
		}
		r.Warn("%v", refused)
	}
	return nil
}

// UnknownAccount stands in dry-run files where the account's ID is not known. It is without <>, which JSON within JSON
// would escape.
const UnknownAccount = "ENTER_ACCOUNT_ID_HERE"

// futureProviderARN returns the ARN that a provider will have, as far as it is known without a call. The partition is
// guessed from the region, as ccoctl does.
func (o Options) futureProviderARN() string {
	account := awsiam.Account{ID: o.Account, Partition: awsconf.Partition(o.Region)}
	if account.ID == "" {
		account.ID = UnknownAccount
	}
	return account.ProviderARN(o.IssuerURL)
}

// secrets returns the manifest of the Secret that each CredentialsRequest asks for. In a dry run the account, and with it
// the roles' ARNs, is not known.
func (r *run) secrets(set roleSet) []ccoctl.File {
	var files []ccoctl.File
	for _, q := range set.requests {
		s := ccoctl.Secret{Namespace: q.SecretNamespace, Name: q.SecretName, RoleARN: q.AWS.RoleARN, TokenPath: q.CloudTokenPath}
		if s.RoleARN == "" && r.client != nil {
			s.RoleARN = r.account.RoleARN(ccoctl.RoleName(set.name, q.SecretNamespace, q.SecretName))
		}
		files = append(files, s.File())
	}
	return files
}

// dryRunFiles returns the files of the roles, numbered by their CredentialsRequests, and their Secrets.
func (r *run) dryRunFiles(set roleSet, trust awsiam.Trust) []ccoctl.File {
	var files []ccoctl.File
	roles := set.roles
	for i, q := range set.requests {
		if q.HasIdentity() {
			continue
		}
		role := roles[0]
		roles = roles[1:]
		id := ccoctl.RoleID{Number: i, Installation: set.name, Namespace: q.SecretNamespace, Secret: q.SecretName}
		files = append(files, id.Files(role.CreateJSON(trust), role.PolicyJSON())...)
	}
	return append(files, r.secrets(set)...)
}
