package aws

import (
	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/ccoctl"
)

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
