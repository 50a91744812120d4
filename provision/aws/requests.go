package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// RequestedRoles are the roles that a release's CredentialsRequests ask for.
type RequestedRoles struct {
	Dir         string // with the CredentialsRequests
	TechPreview bool   // also those of tech preview features
	Boundary    string // ARN of the policy that bounds every role's permissions
	Prune       bool   // take away what no CredentialsRequest asks for: roles, permissions, service accounts
}

// roleSet is what a directory of CredentialsRequests asks for.
type roleSet struct {
	name     string // the installation's
	requests []credrequest.Request
	skipped  []string
	prune    bool          // delete the other roles of the installation; else they are listed as beyond what is wanted
	roles    []awsiam.Role // of the requests that do not bring a role of their own, in their order
}

// readRoles reads the CredentialsRequests, all of them before anything is done about one.
func readRoles(o Options, q RequestedRoles) (roleSet, error) {
	requests, skipped, err := credrequest.ReadDir(credrequest.AWS, q.Dir, q.TechPreview)
	if err != nil {
		return roleSet{}, fmt.Errorf("read CredentialsRequests: %w", err)
	}
	set := roleSet{name: o.Name, requests: requests, skipped: skipped, prune: q.Prune}
	for _, request := range requests {
		if request.HasIdentity() {
			continue
		}
		role, err := requestedRole(o.Name, request)
		if err != nil {
			return roleSet{}, err
		}
		role.Boundary, role.Prune = q.Boundary, q.Prune
		role.Tags, role.Adopt, role.Tighten = o.Tags, o.Adopt, o.Tighten
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
	surplus, err := r.client.PlanPrune(ctx, set.name, keep, !set.prune)
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
	there, err := r.client.Trust(ctx, trust.ProviderARN)
	if err != nil {
		return &install.Error{Problem: install.ProviderUnread, Provider: trust.ProviderARN, Err: err}
	}
	taken := func(a string) bool { return slices.Contains(there.Audiences, a) }
	unknown := slices.DeleteFunc(slices.Clone(trust.Audiences), taken)
	switch known := len(trust.Audiences) - len(unknown); {
	case len(unknown) == 0:
	case r.o.Usual && known == 0:
		trust.Audiences = there.Audiences
	case r.o.Usual:
		trust.Audiences = slices.DeleteFunc(slices.Clone(trust.Audiences), func(a string) bool { return !taken(a) })
	default:
		refused := fmt.Errorf("%s takes no tokens for the audience %s (it takes %s), so that AWS refuses them whatever the role trusts",
			there.ProviderARN, strings.Join(unknown, ", "), strings.Join(there.Audiences, ", "))
		if known == 0 {
			return &install.Error{Problem: install.UnknownAudience, Provider: there.ProviderARN, Audience: unknown[0], Err: refused}
		}
		r.Warn("%v", refused)
	}
	return nil
}
