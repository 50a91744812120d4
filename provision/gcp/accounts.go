package gcp

import (
	"context"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// AccountsCreated is what [CreateAccounts] made.
type AccountsCreated struct {
	Preview *plan.Preview // with mode Preview; Secrets is empty then
	Secrets []install.Secret
}

// componentAudience is that of the tokens of OpenShift's own components.
const componentAudience = "openshift"

// CreateAccounts makes the service accounts that a release's CredentialsRequests ask for, and the Secrets that name them, for a
// provider that exists. Existing accounts are compared and brought up to date. With IssuerURL, the provider must be that issuer's.
func CreateAccounts(ctx context.Context, o Options, q RequestedAccounts) (AccountsCreated, error) {
	r := newRun(o)
	set, err := readRequests(o, q)
	if err != nil {
		r.Lines(set.skipped)
		return AccountsCreated{}, err
	}
	wanted := iam.Wanted{Accounts: &set.wanted}
	if err := wanted.Accounts.Check(); err != nil {
		return AccountsCreated{}, err
	}
	if err := r.CheckDir(o.Adopt, o.IssuerURL); err != nil {
		return AccountsCreated{}, err
	}
	if o.Mode == install.DryRun {
		r.Lines(set.skipped)
		return AccountsCreated{}, r.WriteFiles(r.accountFiles(set)...)
	}
	if err := r.identify(ctx); err != nil {
		return AccountsCreated{}, err
	}
	r.Lines(set.skipped)
	issuerURL, err := r.checkProvider(ctx)
	if err == nil {
		err = r.CheckDir(o.Adopt, issuerURL)
	}
	if err != nil {
		return AccountsCreated{}, err
	}
	p, err := r.client.Plan(ctx, wanted)
	if err != nil {
		return AccountsCreated{}, err
	}
	if preview, err := r.carryOut(ctx, p.Plan); err != nil || preview != nil {
		return AccountsCreated{Preview: preview}, err
	}
	set.emails = p.Emails
	files := r.secrets(set)
	var made AccountsCreated
	for i, q := range set.requests {
		made.Secrets = append(made.Secrets, r.Secret(q.SecretNamespace, files[i]))
	}
	return made, r.WriteFiles(files...)
}

// checkProvider returns the issuer URL of the run's provider. It returns an error unless that is there, and the issuer's that is meant.
func (r *run) checkProvider(ctx context.Context) (issuerURL string, err error) {
	p := r.o.provider(nil, "")
	there, err := r.client.Provider(ctx, p.Pool, p.ID)
	if err != nil {
		return "", &install.Error{Problem: install.ProviderUnread, Provider: p.ID, Err: err}
	}
	if r.IssuerURL != "" && there.IssuerURL != r.IssuerURL {
		return "", install.Refuse(install.ForeignProvider, "the provider %s is for the issuer %s, not for %s", r.project.ProviderName(p.Pool, p.ID),
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
	account := iam.Account{ID: o.Name, DisplayName: o.Name, For: o.For, Roles: o.Roles}
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
	if preview, err := r.carryOut(ctx, p.Plan); err != nil || preview != nil {
		return WorkloadCreated{Preview: preview}, err
	}
	return WorkloadCreated{Project: r.project, Email: p.Emails[0], Audience: r.audience()}, nil
}
