package gcp

import (
	"fmt"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/install"
)

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
		Owner: federation.OwnedBy(o.Name), Pool: o.pool().ID, All: q.Prune || o.Mode == install.Preview, Prune: q.Prune, Adopt: o.Adopt,
	}}
	for _, request := range requests {
		if !request.HasIdentity() {
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
		Request: q.Name, For: fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File), Roles: q.GCP.PredefinedRoles, Permissions: q.GCP.Permissions,
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
