package gcp

import (
	"context"
	"fmt"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// componentAudience is that of the tokens of OpenShift's own components.
const componentAudience = "openshift"

// CreateAccounts makes the service accounts that a release's CredentialsRequests ask for, and the Secrets that name them, for a
// provider that exists. Existing accounts are compared and brought up to date. With IssuerURL, the provider must be that issuer's.
func CreateAccounts(ctx context.Context, o Options, q RequestedAccounts) (install.Identities, error) {
	c, err := newCreation(o, &q)
	if err != nil {
		return install.Identities{}, err
	}
	c.only = true
	return c.CreateIdentities(ctx, install.CreateOptions{Notes: c.set.skipped, Parallel: iam.Parallel}, c, o.IssuerURL)
}

// checkProvider returns the issuer URL of the run's provider. It returns an error unless that is there, and the issuer's that is meant.
func (r *run) checkProvider(ctx context.Context) (issuerURL string, err error) {
	there, err := r.client.Provider(ctx, r.o.PoolID, r.o.ProviderID)
	if err != nil {
		return "", &install.Error{Problem: install.ProviderUnread, Provider: r.o.ProviderID, Err: err}
	}
	if r.IssuerURL != "" && there.IssuerURL != r.IssuerURL {
		return "", install.Refuse(install.ForeignProvider, "the provider %s is for the issuer %s, not for %s", r.provider(),
			there.IssuerURL, r.IssuerURL)
	}
	return there.IssuerURL, nil
}

// WorkloadOptions say which service account to make for a workload of any cluster.
type WorkloadOptions struct {
	Options                // Name is the account's ID, PoolID and ProviderID must be given, and the Store is only named in the log
	For             string // what asks for the account; for messages
	ServiceAccounts []install.ServiceAccount
	Roles           []string // in the project; custom ones by their full names
	Prune           bool     // anyone else of the pool who may impersonate it loses that
}

// WorkloadCreated is a service account for a workload.
type WorkloadCreated struct {
	Preview  *plan.Preview // with mode Preview; the rest is zero then
	Project  federation.Project
	Email    string
	Audience string // what a credential configuration names as its audience
}

// CreateWorkload makes a service account that pods of some Kubernetes service accounts may impersonate. The provider must exist.
func CreateWorkload(ctx context.Context, o WorkloadOptions) (WorkloadCreated, error) {
	r := newRun(o.Options)
	account := iam.Account{Name: o.Name, For: o.For, Roles: o.Roles}
	for _, a := range o.ServiceAccounts {
		account.Subjects = append(account.Subjects, a.Subject())
	}
	wanted := iam.Wanted{Accounts: &iam.Accounts{Owner: federation.OwnedByKeypost(), Pool: o.PoolID, List: []iam.Account{account}, Adopt: o.Adopt, Prune: o.Prune}}
	if err := wanted.Accounts.Check(); err != nil {
		return WorkloadCreated{}, err
	}
	if err := r.identify(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	if _, err := r.checkProvider(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	p, err := r.client.Plan(ctx, wanted)
	if err != nil {
		return WorkloadCreated{}, err
	}
	if preview, err := r.CarryOut(ctx, p.Plan, iam.Parallel); err != nil || preview != nil {
		return WorkloadCreated{Preview: preview}, err
	}
	return WorkloadCreated{Project: r.project, Email: p.Emails[0], Audience: r.audience()}, nil
}

// RequestedAccounts are the service accounts that a release's CredentialsRequests ask for.
type RequestedAccounts struct {
	Dir         string // with the CredentialsRequests
	TechPreview bool   // also those of tech preview features
	Prune       bool   // delete the accounts whose CredentialsRequest is gone, and take permissions from roles that nobody asks for
}

// requestSet is what a directory of CredentialsRequests asks for.
type requestSet struct {
	requests []credrequest.Request
	skipped  []string
	wanted   iam.Accounts
	emails   []string // of wanted.List, once they are planned
}

// readRequests reads the CredentialsRequests, all of them before anything is done about one.
func readRequests(o Options, q RequestedAccounts) (requestSet, error) {
	requests, skipped, err := credrequest.ReadDir(credrequest.GCP, q.Dir, q.TechPreview)
	if err != nil {
		return requestSet{}, fmt.Errorf("read CredentialsRequests: %w", err)
	}
	set := requestSet{requests: requests, skipped: skipped, wanted: iam.Accounts{
		Owner: federation.OwnedBy(o.Name), Pool: o.PoolID, All: q.Prune || o.Mode == install.Preview, Prune: q.Prune, Adopt: o.Adopt,
	}}
	for _, request := range requests {
		if request.HasIdentity() {
			set.wanted.Named = append(set.wanted.Named, request.GCP.ServiceAccountEmail)
		} else {
			set.wanted.List = append(set.wanted.List, requestedAccount(request))
		}
	}
	if len(requests) == 0 {
		return set, install.Refuse(install.NoRequests, "%s has no CredentialsRequest for Google Cloud in any file named *.yaml or *.yml (%s left out)", q.Dir,
			text.Count(len(skipped), "thing was", "things were"))
	}
	return set, nil
}

// requestedAccount returns ccoctl's account for a CredentialsRequest. Its users are in the namespace of its Secret.
func requestedAccount(q credrequest.Request) iam.Account {
	a := iam.Account{
		Name: q.Name, For: fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File), Roles: q.GCP.PredefinedRoles, Permissions: q.GCP.Permissions,
	}
	for _, name := range q.ServiceAccounts {
		a.Subjects = append(a.Subjects, install.Subject(q.SecretNamespace, name))
	}
	return a
}

// secrets returns the manifest of the Secret that each CredentialsRequest asks for, once its account is planned.
func (r *run) secrets(set requestSet) []ccoctl.File {
	var files []ccoctl.File
	emails := set.emails
	for _, q := range set.requests {
		s := ccoctl.GCPSecret{Namespace: q.SecretNamespace, Name: q.SecretName, TokenPath: q.CloudTokenPath,
			Provider: q.GCP.Audience, Email: q.GCP.ServiceAccountEmail}
		if !q.HasIdentity() {
			s.Provider, s.Email = r.audience(), emails[0]
			emails = emails[1:]
		}
		files = append(files, s.File())
	}
	return files
}
